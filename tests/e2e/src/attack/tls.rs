//! Clients that hold and waste TLS handshakes.

use std::process::Stdio;
use std::sync::Arc;

use rustls_pki_types::ServerName;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout_at;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::ground::{Ground, crowd, crowd_again, drain};

/// The start of a ClientHello of 512 bytes that never goes on.
const HALF_HELLO: &[u8] = &[22, 3, 1, 2, 0, 1, 0, 1, 0xfc, 3, 3, 1, 2, 3, 4];
/// Where these come from: with a share of all places each, together they have all.
const ADDRESSES: u8 = 150;
/// Changes of keys that are asked for on one connection.
const KEY_UPDATES_MAX: usize = 1_000_000;

async fn handshake(ground: &Ground) -> Option<TlsStream<TcpStream>> {
    let stream = ground.connect().await.ok()?;
    let connector = TlsConnector::from(Arc::clone(ground.tls.as_ref()?));
    let name = ServerName::try_from("localhost").ok()?;
    timeout_at(ground.end, connector.connect(name, stream)).await.ok()?.ok()
}

/// Handshakes that begin and do not go on.
pub(super) async fn half_handshakes(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(2_000, 100), |ground, index| async move {
        let Ok(mut stream) = ground.connect_from_many(index, ADDRESSES).await else { return };
        if stream.write_all(HALF_HELLO).await.is_err() {
            return;
        }
        drain(&mut stream).await;
    })
    .await;
}

/// Whole handshakes, one after the other, and nothing said.
pub(super) async fn handshakes(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(16, 4), |ground, _| async move {
        if let Some(stream) = handshake(&ground).await {
            ground.count_calls(1);
            let _best_effort = stream.get_ref().0.set_zero_linger();
        }
    })
    .await;
    ground.remark(format!("{} handshakes", ground.client_calls()));
}

/// Bytes that are no handshake.
pub(super) async fn garbage(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(64, 16), |ground, _| async move {
        let Ok(mut stream) = ground.connect().await else { return };
        let _best_effort = stream.set_zero_linger();
        let bytes = b"POST / HTTP/1.1\r\nhost: localhost\r\n\r\n";
        if stream.write_all(bytes).await.is_ok() {
            drain(&mut stream).await;
        }
    })
    .await;
}

/// New keys asked for without end (TLS 1.3, KeyUpdate), each of which costs the server as well.
pub(super) async fn key_updates(ground: &Arc<Ground>) {
    crowd_again(ground, ground.sized(8, 2), |ground, _| async move {
        let Some(mut stream) = handshake(&ground).await else { return };
        for round in 0..KEY_UPDATES_MAX {
            if ground.is_over() || stream.get_mut().1.refresh_traffic_keys().is_err() {
                return;
            }
            // A byte of a request each time, so that no two go in one record.
            let byte = b"POST / HTTP/1.1\r\n".get(round).unwrap_or(&b'\n');
            if stream.write_all(&[*byte]).await.is_err() || stream.flush().await.is_err() {
                return;
            }
        }
    })
    .await;
}

/// Another handshake within a connection (TLS 1.2), asked for by `openssl s_client`: a server has to refuse it.
pub(super) async fn renegotiation(ground: &Arc<Ground>) {
    crowd(ground, 8, |ground, _| async move {
        while !ground.is_over() {
            let started = tokio::process::Command::new("openssl")
                .args(["s_client", "-tls1_2", "-connect", &ground.target.to_string()])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .kill_on_drop(true)
                .spawn();
            let Ok(mut child) = started else {
                ground.remark("no `openssl` here: renegotiation was not asked for".to_owned());
                return;
            };
            // `R` on a line of its own asks for one.
            if let Some(mut input) = child.stdin.take() {
                for _ in 0..50 {
                    if input.write_all(b"R\n").await.is_err() {
                        break;
                    }
                    tokio::time::sleep(tokio::time::Duration::from_millis(20)).await;
                }
            }
            let Ok(output) = child.wait_with_output().await else { return };
            ground.count_calls(1);
            let told = String::from_utf8_lossy(&output.stderr);
            // It says `RENEGOTIATING` and, when all went well, verifies the certificate again.
            if told.matches("verify return").count() > 3 {
                ground.violation("a handshake within a connection was taken".to_owned());
            }
        }
    })
    .await;
}
