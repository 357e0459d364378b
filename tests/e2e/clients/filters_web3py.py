"""web3.py over HTTP: URL LOGGER. Prints a line for each head and log that its filters tell.

It ends them when stdin ends.
"""

import sys
import threading
import time

from lines_web3py import TRANSFER, show, show_log
from requests.exceptions import ConnectionError as NotConnected
from web3 import HTTPProvider, Web3

url, logger = sys.argv[1], sys.argv[2]
web3 = Web3(HTTPProvider(url))


def changes(of):
    try:
        return of.get_new_entries()
    except NotConnected:
        # wellhead is started anew.
        return []


blocks = web3.eth.filter("latest")
transfer = web3.keccak(text=TRANSFER)
logs = web3.eth.filter({"address": web3.to_checksum_address(logger), "topics": [transfer]})
show("subscribed")

is_over = threading.Event()
threading.Thread(target=lambda: (sys.stdin.read(), is_over.set()), daemon=True).start()
while not is_over.is_set():
    for block_hash in changes(blocks):
        show({"head": block_hash.to_0x_hex()})
    for log in changes(logs):
        show_log(log)
    time.sleep(0.1)
assert web3.eth.uninstall_filter(blocks.filter_id)
assert web3.eth.uninstall_filter(logs.filter_id)
show("unsubscribed")
