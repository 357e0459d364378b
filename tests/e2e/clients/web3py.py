"""web3.py against one endpoint: URL KEY CHAIN_ID. Prints a line for each thing done."""

import os
import sys

from web3 import LegacyWebSocketProvider, Web3
from web3.exceptions import ContractLogicError, TransactionNotFound

url, key, chain_id = sys.argv[1], sys.argv[2], int(sys.argv[3])
web3 = Web3((LegacyWebSocketProvider if url.startswith("ws") else Web3.HTTPProvider)(url))
account = web3.eth.account.from_key(key)
# Stores 42, logs it, and returns it when called with nothing; reverts with "no" for 0x02.
BYTECODE = os.environ["CONTRACT"]


def done(what):
    print(f"web3py: {what}")


def send(fields):
    """Signs and sends a transaction, and waits for its receipt."""
    transaction = {
        "chainId": chain_id,
        "from": account.address,
        "nonce": web3.eth.get_transaction_count(account.address),
        "maxFeePerGas": web3.eth.gas_price * 2,
        "maxPriorityFeePerGas": web3.eth.max_priority_fee,
        "value": 0,
        **fields,
    }
    if "gas" not in transaction:
        transaction["gas"] = web3.eth.estimate_gas(transaction)
    signed = account.sign_transaction(transaction)
    sent = web3.eth.send_raw_transaction(signed.raw_transaction)
    return web3.eth.wait_for_transaction_receipt(sent, timeout=30, poll_latency=0.1)


assert web3.is_connected()
assert web3.eth.chain_id == chain_id
head = web3.eth.block_number
assert web3.eth.get_balance(account.address) > web3.to_wei(1, "ether")
block = web3.eth.get_block("latest", full_transactions=True)
assert block["number"] >= head
done("reads")

to = web3.to_checksum_address("0x00000000000000000000000000000000000000bd")
before = web3.eth.get_balance(to)
receipt = send({"to": to, "value": 1000})
assert receipt["status"] == 1
assert web3.eth.get_balance(to) == before + 1000
assert web3.eth.get_transaction(receipt["transactionHash"])["blockHash"] == receipt["blockHash"]
try:
    web3.eth.get_transaction("0x" + "00" * 31 + "ff")
except TransactionNotFound:
    pass
else:
    raise AssertionError("a transaction that was never sent was found")
done("a transaction and its receipt")

contract = send({"data": BYTECODE})["contractAddress"]
called = send({"to": contract, "gas": 200_000})
assert len(called["logs"]) == 1
logs = web3.eth.get_logs({"address": contract, "blockHash": called["blockHash"]})
assert [log["transactionHash"] for log in logs] == [called["transactionHash"]]
assert int.from_bytes(web3.eth.call({"to": contract, "data": "0x06"}), "big") == 42
try:
    web3.eth.call({"to": contract, "data": "0x02"})
except ContractLogicError as error:
    assert "no" in str(error), error
else:
    raise AssertionError("a revert was not noticed")
done("a contract: a log, a call, a revert with its reason")

numbers = [0, 1, block["number"]]
with web3.batch_requests() as batch:
    for number in numbers:
        batch.add(web3.eth.get_block(number))
    blocks = batch.execute()
assert [found["number"] for found in blocks] == numbers
done("a batch")

signed = account.sign_transaction(
    {
        "chainId": chain_id + 1,
        "to": to,
        "nonce": web3.eth.get_transaction_count(account.address),
        "gas": 21_000,
        "maxFeePerGas": web3.eth.gas_price * 2,
        "maxPriorityFeePerGas": 1,
        "value": 1,
    }
)
try:
    web3.eth.send_raw_transaction(signed.raw_transaction)
except Exception as error:
    assert "chain" in str(error).lower() or "signer" in str(error).lower(), error
else:
    raise AssertionError("a transaction for another chain was taken")
done("another chain is noticed")
