//! alloy's provider: URL LOGGER. Over WebSocket it subscribes, and prints a line for each head, log and pending
//! transaction; over HTTP it keeps filters, and prints a line for each head and log that they tell, until
//! stdin ends. It connects and subscribes again by itself.

use std::error::Error;
use std::time::Duration;

use alloy_primitives::{Address, U256};
use alloy_provider::{Provider, ProviderBuilder, WsConnect};
use alloy_rpc_types_eth::{Filter, Log};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt as _;

/// alloy drops what comes while so many events wait for their reader, which is 16 by default: less than a
/// reorg brings.
const EVENTS_MAX: usize = 1_024;
/// How often a filter is polled; every 7 s by default.
const POLLED_EVERY: Duration = Duration::from_millis(100);

fn show(line: Value) {
    println!("{line}");
}

fn show_log(log: &Log) -> Result<(), Box<dyn Error>> {
    show(json!({
        "log": [log.block_hash, log.log_index, log.transaction_hash, log.removed],
        "value": u64::try_from(U256::from_be_slice(&log.inner.data.data))?,
    }));
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, logger] = arguments.as_slice() else {
        return Err("usage: alloy-client URL LOGGER".into());
    };
    let filter = Filter::new()
        .address(logger.parse::<Address>()?)
        .event("Transfer(address,address,uint256)");
    match url.starts_with("ws") {
        true => listen(url, &filter).await,
        false => poll(url, &filter).await,
    }
}

async fn listen(url: &str, filter: &Filter) -> Result<(), Box<dyn Error>> {
    let connect =
        WsConnect::new(url).with_max_retries(600).with_retry_interval(Duration::from_millis(50));
    let provider = ProviderBuilder::new().connect_ws(connect).await?;
    let of_heads = provider.subscribe_blocks().channel_size(EVENTS_MAX).await?;
    let of_logs = provider.subscribe_logs(filter).channel_size(EVENTS_MAX).await?;
    let of_pending = provider.subscribe_pending_transactions().channel_size(EVENTS_MAX).await?;
    let ids = [*of_heads.local_id(), *of_logs.local_id(), *of_pending.local_id()];
    let (mut heads, mut logs, mut pending) =
        (of_heads.into_stream(), of_logs.into_stream(), of_pending.into_stream());
    show(json!("subscribed"));

    let mut stdin = tokio::io::stdin();
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            // The hash is computed from all fields of the header.
            Some(head) = heads.next() => show(json!({ "head": head.inner.hash_slow() })),
            Some(log) = logs.next() => show_log(&log)?,
            Some(hash) = pending.next() => show(json!({ "pending": hash })),
            read = stdin.read(&mut rest) => if read? == 0 { break },
        }
    }
    for id in ids {
        provider.unsubscribe(id).await?;
    }
    if provider.get_chain_id().await? != 7357 {
        return Err("another chain".into());
    }
    show(json!("unsubscribed"));
    Ok(())
}

async fn poll(url: &str, filter: &Filter) -> Result<(), Box<dyn Error>> {
    let provider = ProviderBuilder::new().connect_http(url.parse()?);
    let of_blocks = provider.watch_blocks().await?;
    let mut blocks = of_blocks.with_poll_interval(POLLED_EVERY).into_stream();
    let of_logs = provider.watch_logs(filter).await?;
    let mut logs = of_logs.with_poll_interval(POLLED_EVERY).into_stream();
    show(json!("subscribed"));

    let mut stdin = tokio::io::stdin();
    let mut rest = [0; 64];
    loop {
        tokio::select! {
            Some(hashes) = blocks.next() => hashes.iter().for_each(|hash| show(json!({ "head": hash }))),
            Some(told) = logs.next() => told.iter().try_for_each(show_log)?,
            read = stdin.read(&mut rest) => if read? == 0 { break },
        }
    }
    // It has no way to end them: filters that no client polls end by themselves.
    show(json!("unsubscribed"));
    Ok(())
}
