"""web3.py gives a key in each way there is: URL WS_URL KEY. Prints a line for each."""

import sys

from requests.exceptions import HTTPError
from web3 import LegacyWebSocketProvider, Web3
from websockets.legacy.exceptions import InvalidStatusCode

url, ws_url, key = sys.argv[1:4]


def show(what, provider):
    try:
        print(f"{what}: {Web3(provider).eth.chain_id}")
    except HTTPError as error:
        assert error.response.status_code == 401, error
        print(f"{what}: refused")
    except InvalidStatusCode as error:
        assert error.status_code == 401, error
        print(f"{what}: refused")


def over_http(what, at, headers=None):
    fields = {"content-type": "application/json", **(headers or {})}
    show(f"http {what}", Web3.HTTPProvider(at, request_kwargs={"headers": fields}))


def over_ws(what, at, **options):
    show(f"ws {what}", LegacyWebSocketProvider(at, websocket_kwargs=options))


def with_password(of, user=""):
    return of.replace("//", f"//{user}:{key}@")


over_http("path", f"{url}/main/{key}")
over_http("header", url, {"x-api-key": key})
over_http("bearer", url, {"authorization": f"Bearer {key}"})
over_http("basic", with_password(url))
over_http("query", f"{url}/?key={key}")
over_http("none", url)
over_ws("path", f"{ws_url}/main/{key}")
over_ws("header", ws_url, extra_headers={"x-api-key": key})
over_ws("bearer", ws_url, extra_headers={"authorization": f"Bearer {key}"})
over_ws("basic", with_password(ws_url))
over_ws("subprotocol", ws_url, subprotocols=[f"wellhead.key.{key}", "wellhead"])
over_ws("query", f"{ws_url}/?key={key}")
over_ws("none", ws_url)
