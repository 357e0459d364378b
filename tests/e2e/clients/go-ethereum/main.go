// go-ethereum's client: URL LOGGER. Over WebSocket it subscribes, and prints a line for each head, log and pending
// transaction; over HTTP it keeps filters, and prints a line for each head and log that they tell. It ends both when
// stdin ends.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/ethereum/go-ethereum/rpc"
	"github.com/gorilla/websocket"
)

var transfer = crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))

func show(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
}

func showLog(it types.Log) {
	show(map[string]any{
		"log":   []any{it.BlockHash, it.Index, it.TxHash, it.Removed},
		"value": new(big.Int).SetBytes(it.Data),
	})
}

func main() {
	stdinEnd := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stdinEnd)
	}()
	url, logger := os.Args[1], common.HexToAddress(os.Args[2])
	if !strings.HasPrefix(url, "ws") {
		if err := poll(context.Background(), url, logger, stdinEnd); err != nil {
			log.Fatal(err)
		}
		return
	}
	for {
		err := listen(context.Background(), url, logger, stdinEnd)
		var closed *websocket.CloseError
		switch {
		case err == nil:
			return
		case errors.As(err, &closed):
			show(map[string]any{"closed": closed.Code})
		case !errors.Is(err, syscall.ECONNREFUSED):
			log.Fatal(err)
		}
		// It does not connect again by itself.
		time.Sleep(50 * time.Millisecond)
	}
}

// listen subscribes on a new connection; it returns when that ends, or without an error when stdin does.
func listen(ctx context.Context, url string, logger common.Address, stdinEnd <-chan struct{}) error {
	client, err := ethclient.DialContext(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	heads, logs := make(chan *types.Header), make(chan types.Log)
	ofHeads, err := client.SubscribeNewHead(ctx, heads)
	if err != nil {
		return err
	}
	filter := ethereum.FilterQuery{Addresses: []common.Address{logger}, Topics: [][]common.Hash{{transfer}}}
	ofLogs, err := client.SubscribeFilterLogs(ctx, filter, logs)
	if err != nil {
		return err
	}
	pending := make(chan common.Hash)
	ofPending, err := client.Client().EthSubscribe(ctx, pending, "newPendingTransactions")
	if err != nil {
		return err
	}
	show("subscribed")
	for {
		select {
		case head := <-heads:
			// The hash is computed from all fields of the header.
			show(map[string]any{"head": head.Hash()})
		case it := <-logs:
			showLog(it)
		case hash := <-pending:
			show(map[string]any{"pending": hash})
		case err := <-ofHeads.Err():
			return err
		case err := <-ofLogs.Err():
			return err
		case err := <-ofPending.Err():
			return err
		case <-stdinEnd:
			ofHeads.Unsubscribe()
			ofLogs.Unsubscribe()
			ofPending.Unsubscribe()
			chain, err := client.ChainID(ctx)
			if err == nil && chain.Uint64() != 7357 {
				err = fmt.Errorf("chain %v", chain)
			}
			if err == nil {
				show("unsubscribed")
			}
			return err
		}
	}
}

// poll keeps a filter for blocks and one for logs, which the client leaves to its user, until stdin ends.
func poll(ctx context.Context, url string, logger common.Address, stdinEnd <-chan struct{}) error {
	client, err := rpc.DialContext(ctx, url)
	if err != nil {
		return err
	}
	defer client.Close()
	var ofBlocks, ofLogs string
	if err := client.CallContext(ctx, &ofBlocks, "eth_newBlockFilter"); err != nil {
		return err
	}
	filter := map[string]any{"address": logger, "topics": []common.Hash{transfer}}
	if err := client.CallContext(ctx, &ofLogs, "eth_newFilter", filter); err != nil {
		return err
	}
	show("subscribed")
	// A result that is absent while wellhead is started anew is empty.
	changes := func(into any, id string) error {
		err := client.CallContext(ctx, into, "eth_getFilterChanges", id)
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	for {
		select {
		case <-stdinEnd:
			for _, id := range []string{ofBlocks, ofLogs} {
				var isEnded bool
				if err := client.CallContext(ctx, &isEnded, "eth_uninstallFilter", id); err != nil {
					return err
				}
				if !isEnded {
					return fmt.Errorf("filter %s was not there", id)
				}
			}
			show("unsubscribed")
			return nil
		case <-time.After(100 * time.Millisecond):
		}
		var hashes []common.Hash
		if err := changes(&hashes, ofBlocks); err != nil {
			return err
		}
		for _, hash := range hashes {
			show(map[string]any{"head": hash})
		}
		var logs []types.Log
		if err := changes(&logs, ofLogs); err != nil {
			return err
		}
		for _, it := range logs {
			showLog(it)
		}
	}
}
