// go-ethereum's client over WebSocket: URL LOGGER. Prints a line for each head, log and pending
// transaction; unsubscribes when stdin ends.
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
	"syscall"
	"time"

	"github.com/ethereum/go-ethereum"
	"github.com/ethereum/go-ethereum/common"
	"github.com/ethereum/go-ethereum/core/types"
	"github.com/ethereum/go-ethereum/crypto"
	"github.com/ethereum/go-ethereum/ethclient"
	"github.com/gorilla/websocket"
)

func show(line any) {
	text, err := json.Marshal(line)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(text))
}

func main() {
	stdinEnd := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stdinEnd)
	}()
	for {
		err := listen(context.Background(), os.Args[1], common.HexToAddress(os.Args[2]), stdinEnd)
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
	transfer := crypto.Keccak256Hash([]byte("Transfer(address,address,uint256)"))
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
			show(map[string]any{
				"log":   []any{it.BlockHash, it.Index, it.TxHash, it.Removed},
				"value": new(big.Int).SetBytes(it.Data),
			})
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
