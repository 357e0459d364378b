//! `wellhead explain`, and the page behind it: what would become of a call.

use std::borrow::Cow;
use std::net::{IpAddr, Ipv4Addr};

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use url::form_urlencoded;
use wellhead_access::mask_keys;
use wellhead_proxy::{Proxy, Thought};
use wellhead_server::Health;

use crate::admin_client::ask_json;
use crate::cli::Explain;
use crate::terminal::{CommandError, say};

/// Answers `GET /explain?method=...&params=...&chain=...&client=...&select=label=value`.
pub(crate) fn page(proxy: &Proxy, query: &str) -> Health {
    let (well, body) = match explain(proxy, query) {
        Ok(explanation) => (true, explanation),
        // A key may stand where the name of a chain should.
        Err(why) => (false, json!({ "error": mask_keys(&why) })),
    };
    Health { well, body: Bytes::from(body.to_string()) }
}

fn explain(proxy: &Proxy, query: &str) -> Result<Value, String> {
    let (mut chain, mut method, mut params) = (None, None, None);
    let mut client = IpAddr::from(Ipv4Addr::LOCALHOST);
    let mut select = Vec::new();
    for (name, value) in form_urlencoded::parse(query.as_bytes()) {
        match &*name {
            "chain" => chain = Some(value.into_owned()),
            "method" => method = Some(value.into_owned()),
            "params" => {
                let valid: Result<&RawValue, _> = serde_json::from_str(&value);
                valid.map_err(|error| format!("`params` is not JSON: {error}"))?;
                params = Some(value.into_owned());
            }
            "client" => {
                client =
                    value.parse().map_err(|_| format!("`client` is not an address: `{value}`"))?;
            }
            "select" => select.push(value.into_owned()),
            other => {
                let known = "`method`, `params`, `chain`, `client` and `select`";
                return Err(format!("`{other}` is unknown; known parameters are {known}"));
            }
        }
    }
    let method =
        method.ok_or("`method` is missing: /explain?method=eth_getBalance&params=[...]")?;
    let params = params.as_deref().map(str::as_bytes);
    let pair = |select: &String| match select.split_once('=') {
        Some((label, value)) => (label.to_owned().into(), value.to_owned().into()),
        None => (select.clone().into(), Cow::Borrowed("")),
    };
    let select: Vec<_> = select.iter().map(pair).collect();
    let thought =
        Thought { chain: chain.as_deref(), method: &method, params, client, select: &select };
    let explanation = proxy.explain(thought)?;
    serde_json::to_value(explanation).map_err(|error| error.to_string())
}

/// Asks a running wellhead, and prints what it says.
pub(crate) fn command(arguments: &Explain) -> Result<(), CommandError> {
    let target = target(arguments);
    let (body, told) = ask_json(&arguments.asked.admin, "GET", &target, "")?;
    match arguments.asked.json {
        true => say(&body),
        false => say(&rendered(&told)),
    }
    Ok(())
}

fn target(arguments: &Explain) -> String {
    let mut query = form_urlencoded::Serializer::new(String::new());
    query.append_pair("method", &arguments.method);
    let client = arguments.client.map(|client| client.to_string());
    let given = [("params", &arguments.params), ("chain", &arguments.chain), ("client", &client)];
    for (name, value) in given {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    for pair in &arguments.select {
        query.append_pair("select", pair);
    }
    format!("/explain?{}", query.finish())
}

/// For people.
fn rendered(told: &Value) -> String {
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let (block, cache, verify) = (&told["block"], &told["cache"], &told["verify"]);
    let mut lines = vec![
        format!("chain     {}", text(&told["chain"])),
        format!(
            "method    {} ({}, {})",
            text(&told["method"]),
            text(&told["effect"]),
            text(&told["class"])
        ),
        format!(
            "block     {} -> {}  {}",
            text(&block["asked"]),
            text(&block["sent"]),
            text(&block["why"])
        ),
    ];
    if let Some(params) = block["params"].as_str() {
        lines.push(format!("sent as   {params}"));
    }
    let asked = if cache["asked"] == true { "looked up" } else { "not looked up" };
    lines.push(format!("cache     {asked}: {}", text(&cache["why"])));
    if let (Some(agree), Some(of)) =
        (told["quorum"]["agree"].as_u64(), told["quorum"]["of"].as_u64())
    {
        lines.push(format!("quorum    {agree} of at most {of} upstreams must agree"));
    }
    lines.push(format!("verify    {}: {}", text(&verify["level"]), text(&verify["why"])));
    let upstreams = told["upstreams"].as_array().map(Vec::as_slice).unwrap_or_default();
    if upstreams.is_empty() {
        lines.push("upstreams none: wellhead answers or refuses it itself".to_owned());
    }
    for upstream in upstreams {
        let place = upstream["place"].as_u64().map_or("-".to_owned(), |place| place.to_string());
        let (id, tier, why) =
            (text(&upstream["id"]), text(&upstream["tier"]), text(&upstream["why"]));
        lines.push(format!("{place:>3}  {id}  {tier}  {why}"));
    }
    let steps = told["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !steps.is_empty() {
        lines.push("steps     if each attempt fails:".to_owned());
    }
    for (place, step) in steps.iter().enumerate() {
        lines.push(format!("{:>3}  {}", place + 1, text(step)));
    }
    let heads = told["heads"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !heads.is_empty() {
        lines.push("heads     how new blocks of each upstream are learnt:".to_owned());
    }
    for upstream in heads {
        lines.push(format!("     {}  {}", text(&upstream["id"]), text(&upstream["how"])));
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Admin;

    #[test]
    fn it_is_told_for_people() {
        let told = json!({
            "chain": "main", "method": "eth_getBalance", "effect": "read", "class": "state",
            "block": { "asked": "latest", "sent": "100", "why": "a tag: the agreed block",
                       "params": "[\"0xab\",\"0x64\"]" },
            "cache": { "asked": false, "why": "off" },
            "quorum": { "agree": 2, "of": 3 },
            "verify": { "level": "cheap", "why": "set in the config" },
            "upstreams": [
                { "id": "own", "tier": "primary", "place": 1, "why": "fit" },
                { "id": "late", "tier": "primary", "place": null, "why": "wrong-chain" },
            ],
            "steps": ["call own", "pause for at most 100 ms"],
        });
        let expected = "\
chain     main
method    eth_getBalance (read, state)
block     latest -> 100  a tag: the agreed block
sent as   [\"0xab\",\"0x64\"]
cache     not looked up: off
quorum    2 of at most 3 upstreams must agree
verify    cheap: set in the config
  1  own  primary  fit
  -  late  primary  wrong-chain
steps     if each attempt fails:
  1  call own
  2  pause for at most 100 ms";
        assert_eq!(rendered(&told), expected);
    }

    #[test]
    fn a_subscription_shows_how_blocks_are_learnt() {
        let told = json!({
            "chain": "main", "method": "eth_subscribe", "effect": "subscribe", "class": "light",
            "block": { "asked": "-", "sent": "-", "why": "it names no block" },
            "cache": { "asked": false, "why": "never" },
            "verify": { "level": "off", "why": "there is no check for this method" },
            "heads": [
                { "id": "a", "how": "it pushes them; 7 messages so far, 350 credits" },
                { "id": "b", "how": "it is polled at the pace of blocks" },
            ],
        });
        let shown = rendered(&told);
        let expected = "\
heads     how new blocks of each upstream are learnt:
     a  it pushes them; 7 messages so far, 350 credits
     b  it is polled at the pace of blocks";
        assert!(shown.ends_with(expected), "{shown}");
    }

    #[test]
    fn what_is_asked_for_is_encoded() {
        let arguments = Explain {
            method: "eth_call".to_owned(),
            params: Some(r#"[{"to":"0xab"},"latest"]"#.to_owned()),
            chain: Some("a b".to_owned()),
            client: None,
            select: vec!["archive=true".to_owned()],
            asked: crate::cli::AskedWellhead { admin: Admin::Off, json: false },
        };
        let encoded = "/explain?method=eth_call&\
                       params=%5B%7B%22to%22%3A%220xab%22%7D%2C%22latest%22%5D&chain=a+b&select=archive%3Dtrue";
        assert_eq!(target(&arguments), encoded);
    }
}
