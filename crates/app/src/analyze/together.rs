//! Experiments that ask all targets side by side: `agree`, `fresh`, `reach`.

use std::time::Duration;

use wellhead_analyze::measure::budget::Forecast;
use wellhead_analyze::measure::client::TargetEndpoint;
use wellhead_analyze::measure::inquiry::{agree, fresh, pushed, reach};
use wellhead_analyze::measure::plan::CellOutcome;
use wellhead_analyze::measure::run::{CallBudget, Greeting, PanelMember, RunError, Watch};
use wellhead_analyze::record::Cell;
use wellhead_telemetry::SecretUrl;

use super::{
    ConfirmedRun, PlayedRun, confirm, cut_short, ended, endpoint, finish, greeting_line, names,
    stop_at_signals, tell,
};
use crate::cli::analyze::{AgreeArgs, CommonArgs, FreshArgs, Measured, ReachArgs};
use crate::terminal::{CommandError, complain};

/// Calls between two lines of progress.
const LINE_EVERY: u64 = 50;

/// Which of them.
#[derive(Debug)]
pub(super) enum Inquiry<'a> {
    Agree(&'a Measured<AgreeArgs>),
    Fresh(&'a Measured<FreshArgs>),
    Reach(&'a ReachArgs),
}

impl Inquiry<'_> {
    fn name(&self) -> (&'static str, u32) {
        match self {
            Self::Agree(_) => (agree::NAME, agree::VERSION),
            Self::Fresh(_) => (fresh::NAME, fresh::VERSION),
            Self::Reach(_) => (reach::NAME, reach::VERSION),
        }
    }

    /// URLs of WebSocket that it was given.
    fn sockets(&self) -> &[String] {
        match self {
            Self::Reach(it) => &it.ws,
            Self::Fresh(it) => &it.ws,
            Self::Agree(_) => &[],
        }
    }

    /// Targets that it needs.
    fn targets_min(&self) -> usize {
        match self {
            Self::Agree(_) | Self::Fresh(_) => 2,
            Self::Reach(_) => 1,
        }
    }

    /// Between two calls to one target.
    fn gap(&self) -> Duration {
        match self {
            Self::Agree(it) => Duration::from_secs_f64(1.0 / it.rate),
            Self::Reach(it) => Duration::from_secs_f64(1.0 / it.rate),
            Self::Fresh(it) => Duration::from_millis(it.every_ms),
        }
    }

    fn forecast(&self, endpoint: &TargetEndpoint) -> Forecast {
        let lasts = |calls: u64| self.gap().mul_f64(calls as f64);
        match self {
            Self::Agree(it) => {
                let calls = agree_terms(it).calls_max();
                let parts = [(agree::NAME, agree::AgreeTerms::methods(), calls)];
                Forecast::told(endpoint, &parts, lasts(u64::from(it.asks)))
            }
            Self::Fresh(it) if it.subscribe => {
                let parts = [(fresh::NAME, vec![("eth_subscribe", 1.0)], pushed::calls_max())];
                Forecast::told(endpoint, &parts, fresh_terms(it).lasting)
            }
            Self::Fresh(it) => {
                let terms = fresh_terms(it);
                let parts = [(fresh::NAME, vec![("eth_blockNumber", 1.0)], terms.calls_max())];
                Forecast::told(endpoint, &parts, terms.lasting)
            }
            Self::Reach(it) => {
                let parts = reach_terms(it).parts();
                let parts = parts.map(|(name, method, calls)| (name, vec![(method, 1.0)], calls));
                Forecast::told(endpoint, &parts, lasts(reach::methods_count()))
            }
        }
    }
}

fn agree_terms(it: &Measured<AgreeArgs>) -> agree::AgreeTerms {
    agree::AgreeTerms {
        block: it.block,
        blocks: it.blocks.into(),
        depth: it.depth,
        asks: usize::try_from(it.asks).unwrap_or(usize::MAX),
        seed: it.common.targets.seed,
    }
}

fn fresh_terms(it: &Measured<FreshArgs>) -> fresh::FreshTerms {
    fresh::FreshTerms {
        lasting: Duration::from_secs(it.seconds),
        every: Duration::from_millis(it.every_ms),
        seed: it.common.targets.seed,
    }
}

fn reach_terms(it: &ReachArgs) -> reach::ReachTerms {
    reach::ReachTerms { range_max: it.range_up_to, batch_max: it.batch_up_to }
}

/// Measures all targets together and writes the report.
pub(super) fn measure(common: &CommonArgs, inquiry: &Inquiry<'_>) -> Result<(), CommandError> {
    let endpoints = endpoint::endpoints(&common.targets)?;
    let (name, _) = inquiry.name();
    if endpoints.len() < inquiry.targets_min() {
        return Err(CommandError::Config(format!(
            "`{name}` compares endpoints: give at least two URLs"
        )));
    }
    let sockets = sockets(inquiry.sockets(), endpoints.len())?;
    let forecasts: Vec<Forecast> =
        endpoints.iter().map(|endpoint| inquiry.forecast(endpoint)).collect();
    let Some(run) = confirm(common, &endpoints, &forecasts)? else { return Ok(()) };
    finish(common, &run.dir.clone(), play(common, run, &endpoints, &sockets, inquiry))
}

/// URLs for WebSocket, in the order of the targets.
fn sockets(given: &[String], targets: usize) -> Result<Vec<Option<SecretUrl>>, CommandError> {
    if given.len() > targets {
        return Err(CommandError::Config("there are more `--ws` than endpoints".to_owned()));
    }
    let parse = |(index, text): (usize, &String)| {
        let url = SecretUrl::parse(text).map_err(|why| why.to_string());
        let url = url.and_then(|url| match url.expose().scheme() {
            "ws" | "wss" => Ok(url),
            other => Err(format!("scheme `{other}` is no WebSocket: use ws or wss")),
        });
        // The text is not quoted: it may hold a key.
        url.map(Some).map_err(|why| CommandError::Config(format!("`--ws` {}: {why}", index + 1)))
    };
    given.iter().enumerate().map(parse).collect()
}

async fn play(
    common: &CommonArgs,
    mut run: ConfirmedRun,
    endpoints: &[TargetEndpoint],
    sockets: &[Option<SecretUrl>],
    inquiry: &Inquiry<'_>,
) -> Result<PlayedRun, CommandError> {
    let stop = stop_at_signals();
    let (earlier, budget) = (run.earlier.take(), &run.budget);
    let told = budget.spent();
    let failed = |error: RunError| ended(&error);
    let player = run.player(earlier, common, endpoints, inquiry.sockets(), &stop);
    let mut player = player.map_err(failed)?;
    let mut greetings = Vec::new();
    let names = names(endpoints);
    for ((target, endpoint), name) in (0_u32..).zip(endpoints).zip(&names) {
        let greeting = player.greet(target, endpoint).await.map_err(failed)?;
        tell(&common.gate.conditions, &greeting_line(name, endpoint, &greeting));
        greetings.push(greeting);
    }
    one_chain(&names, &greetings, inquiry)?;
    let members = members(endpoints, &greetings);
    let (name, version) = inquiry.name();
    if members.len() < inquiry.targets_min() {
        if stop.is_set() || budget.is_over() {
            return Ok(PlayedRun { is_answered: true, is_interrupted: stop.is_set() });
        }
        let why = format!("`{name}` has no second endpoint to compare with: nothing was measured");
        return Err(CommandError::System(why));
    }
    let sockets: Vec<Option<SecretUrl>> = members
        .iter()
        .map(|member| sockets.get(member.target as usize).cloned().flatten())
        .collect();
    let mut progress = ProgressLine { budget, names: &names, most: run.calls, told };
    let mut panel =
        player.panel(name, version, &members, inquiry.gap(), &mut progress).map_err(failed)?;
    match inquiry {
        Inquiry::Agree(it) => agree::play(&mut panel, &agree_terms(it)).await,
        Inquiry::Fresh(it) if it.subscribe => {
            pushed::play(&mut panel, &fresh_terms(it), &sockets).await
        }
        Inquiry::Fresh(it) => fresh::play(&mut panel, &fresh_terms(it)).await,
        Inquiry::Reach(it) => reach::play(&mut panel, &reach_terms(it), &sockets).await,
    }
    .map_err(failed)?;
    if let Some(why) = cut_short(&stop, budget) {
        complain(why);
    }
    Ok(PlayedRun { is_answered: true, is_interrupted: stop.is_set() })
}

/// The targets that answered a call.
fn members<'a>(endpoints: &'a [TargetEndpoint], greetings: &[Greeting]) -> Vec<PanelMember<'a>> {
    let members: Vec<PanelMember<'_>> = (0_u32..)
        .zip(endpoints.iter().zip(greetings))
        .filter(|(_, (_, greeting))| greeting.chain_id.is_some() || greeting.block.is_some())
        .map(|(target, (endpoint, _))| PanelMember { target, endpoint })
        .collect();
    if members.len() < endpoints.len() {
        complain("targets that answer no call are not measured");
    }
    members
}

/// Answers of two chains are not compared.
fn one_chain(
    names: &[String],
    greetings: &[Greeting],
    inquiry: &Inquiry<'_>,
) -> Result<(), CommandError> {
    let told: Vec<(u64, &str)> = names
        .iter()
        .zip(greetings)
        .filter_map(|(name, greeting)| Some((greeting.chain_id?, name.as_str())))
        .collect();
    let other = told.iter().find(|(chain, _)| Some(chain) != told.first().map(|(chain, _)| chain));
    match (told.first(), other) {
        (Some((chain, name)), Some((other_chain, other))) if inquiry.targets_min() > 1 => {
            Err(CommandError::Config(format!(
                "nothing was compared: {name} is on chain {chain}, {other} on chain {other_chain}"
            )))
        }
        (_, _) => Ok(()),
    }
}

/// A line on standard error for some calls.
struct ProgressLine<'a> {
    budget: &'a CallBudget,
    names: &'a [String],
    most: u64,
    told: u64,
}

impl Watch for ProgressLine<'_> {
    fn played(&mut self, experiment: &str, cell: &Cell, _: &CellOutcome) {
        let spent = self.budget.spent();
        if spent >= self.told + LINE_EVERY {
            self.told = spent;
            let what = ["method", "probe", "block"]
                .into_iter()
                .find_map(|name| cell.factors.get(name))
                .map_or("", String::as_str);
            // One after another is asked there, and all at the same time by the others.
            let name = self.names.get(cell.target as usize).filter(|_| experiment == reach::NAME);
            let name = name.map_or(String::new(), |name| format!("{name} "));
            complain(&format!(
                "[{spent} of at most {} calls] {name}{experiment}: {what}",
                self.most
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn greeting(chain_id: u64) -> Greeting {
        Greeting { chain_id: Some(chain_id), ..Greeting::default() }
    }

    #[test]
    fn two_chains_are_not_compared() {
        let urls = ["http://a.example/KEY".to_owned(), "http://b.example/KEY".to_owned()];
        let common = CommonArgs { dry_run: true, ..CommonArgs::test(urls.to_vec()) };
        let names = names(&endpoint::endpoints(&common.targets).unwrap_or_default());
        let args = FreshArgs { seconds: 1, every_ms: 100, subscribe: false, ws: Vec::new() };
        let it = Measured { common, args };
        let inquiry = Inquiry::Fresh(&it);
        assert!(one_chain(&names, &[greeting(1), greeting(1)], &inquiry).is_ok());
        let told = one_chain(&names, &[greeting(1), greeting(10)], &inquiry);
        let Err(CommandError::Config(text)) = told else { panic!("it was compared") };
        assert_eq!(text, "nothing was compared: a.example is on chain 1, b.example on chain 10");
    }
}
