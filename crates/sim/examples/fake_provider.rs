//! A fake provider as a program: `fake_provider [--preset unlimited] [--port 0] [--blocks 256]
//! [--certificate FILE]`.
//!
//! Presets are named in `wellhead_sim::provider::Preset`. With `--certificate` it speaks
//! TLS and writes the certificate to trust, made for the run, into that file. Prints the
//! address it listens on, one line, and serves until it is ended, from one thread; its
//! chain has a new block every 12 seconds.

use std::error::Error;
use std::io::{self, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use rustls_pki_types::PrivateKeyDer;
use wellhead_sim::provider::{Preset, ProviderTls};
use wellhead_sim::{FakeProvider, ProviderDials, World, WorldConfig};

const BLOCK_TIME: Duration = Duration::from_secs(12);

fn main() -> Result<(), Box<dyn Error>> {
    let (mut dials, mut port, mut blocks) = (ProviderDials::default(), 0u16, 256u64);
    let mut tls = None;
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("`{word}` needs a value"))?;
        match word.as_str() {
            "--preset" => dials = preset(&value)?,
            "--port" => port = value.parse()?,
            "--blocks" => blocks = value.parse()?,
            "--certificate" => tls = Some(certificate(Path::new(&value))?),
            _ => return Err(format!("unknown option `{word}`").into()),
        }
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let world = World::new(WorldConfig { history_blocks: blocks, ..WorldConfig::default() });
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let provider = FakeProvider::start_on(addr, "provider", world.clone(), dials, tls)?;
        writeln!(io::stdout(), "{}", provider.url())?;
        loop {
            tokio::time::sleep(BLOCK_TIME).await;
            world.mine();
        }
    })
}

fn preset(name: &str) -> Result<ProviderDials, String> {
    match (name, Preset::from_word(name)) {
        ("unlimited", _) => Ok(ProviderDials::default()),
        (_, Some(preset)) => Ok(preset.dials()),
        (_, None) => {
            let known = Preset::ALL.map(Preset::word).join("`, `");
            Err(format!("no preset `{name}`: `unlimited`, `{known}`"))
        }
    }
}

fn certificate(file: &Path) -> Result<ProviderTls, Box<dyn Error>> {
    let names = ["127.0.0.1".to_owned(), "localhost".to_owned()];
    let made = rcgen::generate_simple_self_signed(names)?;
    std::fs::write(file, made.cert.pem())?;
    let key = PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into());
    Ok(ProviderTls::new(made.cert.der().clone(), key)?)
}
