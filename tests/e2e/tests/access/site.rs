//! What the tests share: wellhead with a file of keys before an upstream of this process.

use serde_json::{Value, json};
use wellhead_e2e::attack::upstream::CHAIN_ID;
use wellhead_e2e::{FaultProxy, HttpReply, KeyFile, Rpc, Upstream, Wellhead, attack, tail};

/// One wellhead and what it stands before.
pub(crate) struct Site {
    pub(crate) wellhead: Wellhead,
    /// Before the node: its faults slow calls down.
    pub(crate) proxy: FaultProxy,
}

impl Site {
    /// Serves the chain `main` with these settings beside `chains`.
    pub(crate) async fn start(settings: &str) -> Self {
        Self::start_with(settings, "").await
    }

    /// As [`Self::start`], with more fields of its one upstream.
    pub(crate) async fn start_with(settings: &str, fields: &str) -> Self {
        let node = attack::Upstream::start();
        let proxy = FaultProxy::start(node.address.port()).await;
        let mut upstream = Upstream::new("node", &proxy.url());
        if !fields.is_empty() {
            upstream = upstream.with(fields);
        }
        let wellhead = Wellhead::start_with(settings, CHAIN_ID, &[upstream]).await;
        Self { wellhead, proxy }
    }

    pub(crate) fn port(&self) -> u16 {
        self.wellhead.port
    }

    /// A client with this key.
    pub(crate) fn client(&self, key: &str) -> Rpc {
        Rpc::new(self.port(), &format!("/{key}"))
    }

    /// The log, for the message of a failed test.
    pub(crate) fn log(&self) -> String {
        self.wellhead.process.log()
    }
}

/// The settings that read keys of tenant `acme`, which has no limits, from this file.
pub(crate) fn keys_in(file: &KeyFile) -> String {
    let path = file.path();
    format!("access: {{ keys: {{ file: \"{}\" }} }}\ntenants: {{ acme: {{}} }}\n", path.display())
}

/// A call that was not made before: each number has an address of its own. Returns it with its result.
pub(crate) fn balance_call(number: u64) -> (Value, Value) {
    let address = format!("0x{number:040x}");
    let result = json!(tail(&address));
    let params = json!([address, "latest"]);
    (json!({"jsonrpc": "2.0", "id": 1, "method": "eth_getBalance", "params": params}), result)
}

/// The JSON-RPC code of an answer that is an error.
pub(crate) fn code(reply: &HttpReply) -> i64 {
    let body = reply.json().unwrap_or_else(|why| panic!("{why}"));
    body["error"]["code"].as_i64().unwrap_or_else(|| panic!("no error: {body}"))
}
