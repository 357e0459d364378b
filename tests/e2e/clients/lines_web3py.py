"""The lines that scripts with web3.py print of what they are told."""

import json

TRANSFER = "Transfer(address,address,uint256)"


def show(line):
    print(json.dumps(line), flush=True)


def show_log(log):
    log_id = [
        log["blockHash"].to_0x_hex(),
        log["logIndex"],
        log["transactionHash"].to_0x_hex(),
        log["removed"],
    ]
    show({"log": log_id, "value": int.from_bytes(log["data"], "big")})
