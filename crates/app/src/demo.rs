//! `wellhead demo`: a simulated chain with unreliable upstreams behind the real
//! proxy, a gentle stream of calls, and a table of what happens.
//!
//! Nothing in the proxy knows that this is a demo: the upstreams are real
//! servers on real ports, the settings are read from YAML, and the calls come in
//! over the listener.

mod client;
mod table;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use wellhead_proxy::Proxy;
use wellhead_sim::fleet::Fleet;
use wellhead_telemetry::{clock, log};

use crate::cli;
use crate::config::{self, Admin, Overrides, Settings};
use crate::serve;
use crate::systemd::GivenSockets;
use crate::terminal::{CommandError, say};
use client::Client;

/// The live table is drawn so often.
const REDRAW: Duration = Duration::from_millis(500);
/// Without a terminal a line is printed so often.
const LINE_EVERY: Duration = Duration::from_secs(5);

/// Runs until interrupted, or for as long as asked.
pub(crate) fn run(arguments: &cli::Demo) -> Result<(), CommandError> {
    let live = !arguments.plain && std::io::stdout().is_terminal();
    // A live table and log lines would write over each other.
    let level = if live { "off" } else { "warn" };
    log::start(level, log::Format::Auto).map_err(CommandError::Config)?;
    let (stop, stopped) = std::sync::mpsc::channel();
    let fleet = start_fleet(arguments.seed, stopped)?;
    let settings = settings(arguments, &fleet)?;
    let running =
        serve::start(&Arc::new(settings), GivenSockets::default()).map_err(CommandError::system)?;
    introduce(&running.addresses);

    let runtime = serve::runtime().map_err(CommandError::system)?;
    let outcome = runtime.block_on(async {
        let client = Client::new(running.addresses.listen, arguments.rate, arguments.seed)?;
        let client = Arc::new(client);
        let calls = tokio::spawn(Arc::clone(&client).call(fleet.known.clone()));
        let show = show(Arc::clone(&running.proxy), Arc::clone(&client), fleet.sky.clone(), live);
        let shown = tokio::spawn(show);
        let until = async {
            match arguments.duration() {
                Some(duration) => tokio::time::sleep(duration).await,
                None => std::future::pending().await,
            }
        };
        // The client stops before the drain: what it would send then must fail.
        let stopping = || {
            calls.abort();
            shown.abort();
            say(&format!("\n{}", client.summary()));
        };
        running.control(until, stopping).await.map_err(CommandError::system)
    });
    // The fleet's thread ends when this end of the channel is gone.
    drop(stop);
    outcome
}

/// What the demo uses of the simulated world, which runs on a thread of its own:
/// its upstreams should not wait for the control loops.
struct DemoWorld {
    urls: Vec<(String, String, String)>,
    known: tokio::sync::watch::Receiver<wellhead_sim::world::KnownWorld>,
    sky: tokio::sync::watch::Receiver<wellhead_sim::fleet::Sky>,
}

fn start_fleet(
    seed: u64,
    stopped: std::sync::mpsc::Receiver<()>,
) -> Result<DemoWorld, CommandError> {
    let (ready, started) = std::sync::mpsc::sync_channel(1);
    let work = move || {
        let runtime = match serve::runtime() {
            Ok(runtime) => runtime,
            Err(error) => return drop(ready.send(Err(error))),
        };
        runtime.block_on(async {
            let fleet = match Fleet::start(seed, Duration::from_secs(clock::unix_seconds())) {
                Ok(fleet) => fleet,
                Err(error) => return drop(ready.send(Err(error))),
            };
            let (tell, known) = tokio::sync::watch::channel(fleet.world().known());
            let urls = fleet.upstreams().iter().map(|upstream| {
                (upstream.node().id().to_owned(), upstream.url(), upstream.ws_url())
            });
            let world = DemoWorld { urls: urls.collect(), known, sky: fleet.sky() };
            if ready.send(Ok(world)).is_err() {
                return;
            }
            while matches!(stopped.try_recv(), Err(std::sync::mpsc::TryRecvError::Empty)) {
                tokio::time::sleep(REDRAW).await;
                tell.send_replace(fleet.world().known());
            }
        });
    };
    let spawned = std::thread::Builder::new().name("wellhead-sim".to_owned()).spawn(work);
    spawned.map_err(|error| {
        CommandError::System(format!("the simulation could not start: {error}"))
    })?;
    match started.recv() {
        Ok(Ok(world)) => Ok(world),
        Ok(Err(error)) => {
            Err(CommandError::System(format!("the simulation could not start: {error}")))
        }
        Err(_) => Err(CommandError::System("the simulation ended before it began".to_owned())),
    }
}

fn settings(arguments: &cli::Demo, world: &DemoWorld) -> Result<Settings, CommandError> {
    let mut yaml = String::from("log: { requests: false }\nchains:\n  demo:\n    upstreams:\n");
    for (place, (id, url, ws)) in world.urls.iter().enumerate() {
        // The slowest is followed by polling, so that both ways are to be seen.
        let feed =
            if place + 1 == world.urls.len() { String::new() } else { format!(", ws: \"{ws}\"") };
        yaml.push_str(&format!("      - {{ id: {id}, url: \"{url}\"{feed} }}\n"));
    }
    let overrides = Overrides {
        listen: Some(arguments.listen),
        admin: Some(arguments.admin.clone()),
        ..Overrides::default()
    };
    let loaded = config::parse("the demo's config", &yaml, &|_| None, overrides)
        .map_err(|report| CommandError::System(report.render(false)))?;
    Ok(loaded.settings)
}

fn introduce(addresses: &serve::Addresses) {
    let listen = addresses.listen;
    let json = "-H 'content-type: application/json'";
    say(&format!(
        "wellhead demo: a simulated chain behind the real proxy, at http://{listen}/\n\n\
         try, from another terminal:\n\
         \x20 curl -s http://{listen}/ {json} -d '{{\"id\":1,\"method\":\"eth_blockNumber\"}}'\n\
         \x20 curl -si http://{listen}/ {json} -H 'x-wellhead-trail: 1' -d '{{\"id\":2,\"method\":\"eth_getBlockByNumber\",\"params\":[\"latest\",false]}}'\n\
         \x20 curl -s http://{listen}/ {json} -d '[{{\"id\":3,\"method\":\"eth_chainId\"}},{{\"id\":4,\"method\":\"eth_gasPrice\"}},5]'"
    ));
    match &addresses.admin {
        Admin::At(admin) => say(&format!("dashboard: http://{admin}/\n")),
        Admin::Unix(_) | Admin::Off => say(""),
    }
}

/// Draws for ever.
async fn show(
    proxy: Arc<ArcSwap<Proxy>>,
    client: Arc<Client>,
    sky: tokio::sync::watch::Receiver<wellhead_sim::fleet::Sky>,
    live: bool,
) {
    let mut screen = table::Screen::default();
    loop {
        tokio::time::sleep(if live { REDRAW } else { LINE_EVERY }).await;
        let weather = sky.borrow().clone();
        let status = proxy.load().status();
        if live {
            screen.draw(&table::table(&status, &client.figures(), &weather));
        } else {
            say(&table::line(&status, &client.figures(), &weather));
        }
    }
}
