//! The real binary, put before the upstreams that an attack wants.

use super::play::Subject;
use super::refusal::secret_fields;
use super::upstream::{CHAIN_ID, Upstream};
use super::{Attack, Place, Scale};
use crate::{Certificate, Wellhead};
use std::net::{Ipv4Addr, SocketAddr};

/// Starts wellhead with default settings for this attack, and waits until it serves.
pub async fn wellhead(
    attack: &Attack,
    [hostile, well]: [&Upstream; 2],
    certificate: &Certificate,
    scale: Scale,
) -> (Wellhead, Subject) {
    let one =
        |id: &str, url: &str, more: &str| format!("      - {{ id: {id}, url: \"{url}\"{more} }}\n");
    let (more, upstreams) = match attack.place {
        Place::Plain => (String::new(), one("a", &hostile.url(), "")),
        Place::FewConnections => {
            let few = scale == Scale::Short;
            let limits = if few { "limits: { connections: 200 }" } else { "" };
            (limits.to_owned(), one("a", &hostile.url(), ""))
        }
        Place::Tls => {
            let [certificate, key, _] = certificate.files();
            let (certificate, key) = (certificate.display(), key.display());
            let tls = format!("tls: {{ certificate: \"{certificate}\", key: \"{key}\" }}");
            (tls, one("a", &hostile.url(), ""))
        }
        Place::Secrets => {
            let (url, fields) = secret_fields(&hostile.url());
            (String::new(), one("a", &url, &format!(", {fields}")))
        }
        Place::Two | Place::TwoHttp2 => {
            let http = if attack.place == Place::TwoHttp2 { ", http: \"2\"" } else { "" };
            let both = one("hostile", &hostile.url(), http) + &one("well", &well.url(), "");
            (String::new(), both)
        }
    };
    let chain = format!("  main:\n    id: {CHAIN_ID}\n    upstreams:\n{upstreams}");
    let wellhead = Wellhead::spawn(&more, &chain).ready().await;
    let target = SocketAddr::from((Ipv4Addr::LOCALHOST, wellhead.port));
    let tls = (attack.place == Place::Tls).then(|| certificate.client());
    let subject = Subject { pid: wellhead.process.pid(), target, http2: target, tls };
    (wellhead, subject)
}
