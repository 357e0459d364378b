"""web3.py over WebSocket: URL LOGGER. Prints a line for each head, log and pending transaction.

Unsubscribes when stdin ends.
"""

import asyncio
import sys

from lines_web3py import TRANSFER, show, show_log
from websockets.exceptions import ConnectionClosed
from web3 import AsyncWeb3, WebSocketProvider
from web3.utils.subscriptions import LogsSubscription, NewHeadsSubscription, PendingTxSubscription

url, logger = sys.argv[1], sys.argv[2]


async def on_head(context):
    head = context.result
    block = await context.async_w3.eth.get_block(head["number"])
    assert block["hash"] == head["hash"], (block, head)
    show({"head": head["hash"].to_0x_hex()})


async def on_log(context):
    show_log(context.result)


async def on_pending(context):
    show({"pending": context.result.to_0x_hex()})


async def read_stdin():
    """Reads to the end, as a task that can be left: a thread could not."""
    reader = asyncio.StreamReader()
    protocol = asyncio.StreamReaderProtocol(reader)
    await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, sys.stdin)
    await reader.read()


async def main():
    stdin_end = asyncio.create_task(read_stdin())
    while not stdin_end.done():
        # Calls go in binary frames, which is its default, and pings come far more often than by default.
        provider = WebSocketProvider(url, websocket_kwargs={"ping_interval": 0.1})
        try:
            async with AsyncWeb3(provider) as web3:
                await listen(web3, stdin_end)
        except ConnectionClosed as closed:
            # It does not connect again by itself.
            show({"closed": closed.rcvd.code})


async def listen(web3, stdin_end):
    address = web3.to_checksum_address(logger)
    transfer = web3.keccak(text=TRANSFER)
    await web3.subscription_manager.subscribe(
        [
            NewHeadsSubscription(handler=on_head),
            LogsSubscription(address=address, topics=[transfer], handler=on_log),
            PendingTxSubscription(handler=on_pending),
        ]
    )
    show("subscribed")
    handling = asyncio.create_task(web3.subscription_manager.handle_subscriptions())
    await asyncio.wait([handling, stdin_end], return_when=asyncio.FIRST_COMPLETED)
    if handling.done():
        handling.result()
    assert await web3.subscription_manager.unsubscribe_all()
    await handling
    assert await web3.eth.chain_id == 7357
    show("unsubscribed")


asyncio.run(main())
