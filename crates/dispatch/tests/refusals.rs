//! Refusals of some methods and the calls of others: which are bounded, and how quickly the limit
//! of an account is found all the same.

#![allow(clippy::print_stdout, reason = "the figures are told as well as checked")]

mod support;

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use support::{ScriptedTransport, Stage, locally, step, verified};
use wellhead_dispatch::now;
use wellhead_kit::Arrival;
use wellhead_upstream::{Budget, BudgetTerms, Identity, Slot};

const METHODS: [&str; 4] = ["eth_call", "eth_getBalance", "eth_estimateGas", "eth_blockNumber"];
const ROUND_TRIP: Duration = Duration::from_millis(40);
/// What is accepted after this is counted as late: the limit should be known.
const LATE: Duration = Duration::from_secs(10);
const LASTS: Duration = Duration::from_secs(70);

/// A provider with a limit for all, or methods that it refuses whatever is asked.
#[derive(Debug)]
struct Provider {
    /// Calls a second, in a bucket of one second; `None` without a limit.
    per_second: Option<f64>,
    refused_methods: &'static [&'static str],
    /// How a refusal looks.
    refusal: &'static str,
    began: Instant,
    state: Mutex<State>,
}

#[derive(Debug, Default, Clone, Copy)]
struct State {
    /// Calls that were taken out of the bucket.
    taken: f64,
    /// When that was so.
    at: Duration,
    accepted_late: u64,
    accepted: u64,
    refused: u64,
}

impl Provider {
    fn new(refusal: &'static str) -> Self {
        let (began, state) = (now(), Mutex::default());
        Self { per_second: None, refused_methods: &[], refusal, began, state }
    }

    fn accepts(&self, method: &str) -> bool {
        let (at, mut state) = (now() - self.began, self.state.lock());
        let fits = !self.refused_methods.contains(&method)
            && self.per_second.is_none_or(|per_second| {
                let back = per_second * (at - state.at).as_secs_f64();
                (state.taken, state.at) = ((state.taken - back).max(0.0), at);
                state.taken + 1.0 <= per_second
            });
        if fits {
            state.taken += 1.0;
            state.accepted += 1;
            state.accepted_late += u64::from(at >= LATE);
        } else {
            state.refused += 1;
        }
        fits
    }
}

fn stage(provider: &Arc<Provider>) -> Stage {
    let terms = BudgetTerms { learn: true, ..BudgetTerms::default() };
    let upstream = verified(Identity::named("a"), Slot(0));
    let provider = Arc::clone(provider);
    let script = move |arrival: &Arrival| {
        step(if provider.accepts(&arrival.method()) { "ok" } else { provider.refusal })
            .after(ROUND_TRIP)
    };
    let transport = Arc::new(ScriptedTransport::new(script));
    let mut stage = Stage::of([(upstream.within(Budget::new(None, &terms, 0)), transport)]);
    stage.total = Duration::from_secs(5);
    stage
}

/// How calls of one method went, in the order of [`METHODS`].
#[derive(Debug, Default, Clone, Copy)]
struct Told {
    answered: u64,
    failed: u64,
    /// The longest of those that were answered.
    slowest: Duration,
    /// When the last one failed.
    failed_at: Duration,
}

/// Calls each of `methods` in turn, `per_second` in all, whatever becomes of those before.
async fn play(provider: &Arc<Provider>, methods: &[&'static str], per_second: u32) -> [Told; 4] {
    let (stage, told) = (Rc::new(stage(provider)), Rc::new(Mutex::new([Told::default(); 4])));
    locally(async {
        let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
        let all_began = now();
        let until = all_began + LASTS;
        let mut methods = methods.iter().copied().cycle();
        while now() < until {
            ticks.tick().await;
            let (stage, told) = (Rc::clone(&stage), Rc::clone(&told));
            let method = methods.next().expect("they do not end");
            tokio::task::spawn_local(async move {
                let began = now();
                let is_answered = stage.run(method).await.result.is_ok();
                let place = METHODS.iter().position(|it| *it == method).expect("one of these");
                let told = &mut told.lock()[place];
                told.answered += u64::from(is_answered);
                told.failed += u64::from(!is_answered);
                if !is_answered {
                    told.failed_at = now() - all_began;
                }
                told.slowest =
                    told.slowest.max(if is_answered { now() - began } else { Duration::ZERO });
            });
        }
    })
    .await;
    *told.lock()
}

/// Refuses these methods always; calls of the others go on as if nothing was refused.
async fn check_others(refused_methods: &'static [&'static str], refusal: &'static str) {
    let provider = Arc::new(Provider { refused_methods, ..Provider::new(refusal) });
    let told = play(&provider, &METHODS, 100).await;
    for (method, told) in METHODS.iter().zip(told) {
        println!("{refusal} for {refused_methods:?}: {method} {told:?}");
        if refused_methods.contains(method) {
            continue;
        }
        assert_eq!(told.failed, 0, "{method} with {refused_methods:?}");
        // Now and then one waits for a place, of which there are few at first.
        assert!(told.slowest < ROUND_TRIP * 2, "{method} with {refused_methods:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_method_that_is_refused_holds_up_no_other() {
    check_others(&["eth_call"], "limit").await;
    check_others(&["eth_call"], "429").await;
    // One contract can provoke both.
    check_others(&["eth_call", "eth_estimateGas"], "limit").await;
}

#[tokio::test(start_paused = true)]
async fn a_retry_after_of_ten_years_holds_up_no_other_method() {
    check_others(&["eth_call"], "429+315360000").await;
}

/// The first refusals of two methods look like a limit of all, for a moment.
#[tokio::test(start_paused = true)]
async fn two_methods_that_are_refused_hold_up_no_other_for_long() {
    for refusal in ["limit", "429+1", "429+315360000"] {
        let refused_methods = &["eth_call", "eth_getBalance"];
        let provider = Arc::new(Provider { refused_methods, ..Provider::new(refusal) });
        let told = play(&provider, &METHODS, 100).await;
        println!("{refusal}: {told:?}");
        for place in [2, 3] {
            let Told { answered, failed, failed_at, .. } = told[place];
            assert!(failed * 10 < answered, "{refusal}: {} {:?}", METHODS[place], told[place]);
            assert!(failed_at < LATE, "{refusal}: {} {:?}", METHODS[place], told[place]);
        }
    }
}

/// An upstream has a limit of 125 calls/s that it does not tell, and gets a mix of methods. The limit
/// is used at 90 % or more, with less than 1 % of refusals, as with one method.
async fn check_mix(refusal: &'static str, methods: &[&'static str], demand: u32) {
    let provider = Arc::new(Provider { per_second: Some(125.0), ..Provider::new(refusal) });
    play(&provider, methods, demand).await;
    let state = *provider.state.lock();
    let used = state.accepted_late as f64 / (125.0 * (LASTS - LATE).as_secs_f64());
    let refused = state.refused as f64 / (state.accepted + state.refused) as f64;
    let count = methods.len();
    println!(
        "{refusal} at {demand}/s of {count}: used {:.1} %, refused {:.2} %",
        used * 100.0,
        refused * 100.0
    );
    assert!(used >= 0.9, "{refusal} at {demand}/s of {count}: {used}");
    assert!(refused < 0.01, "{refusal} at {demand}/s of {count}: {refused}");
}

#[tokio::test(start_paused = true)]
async fn the_limit_of_an_account_is_found_with_any_mix_of_methods() {
    for refusal in ["429", "limit", "429+1"] {
        for demand in [200, 500] {
            for count in 1..=METHODS.len() {
                check_mix(refusal, &METHODS[..count], demand).await;
            }
        }
    }
    // Nine in ten are of one method.
    let mostly = ["eth_call"; 9];
    check_mix("429", &[&mostly[..], &["eth_getBalance"]].concat(), 300).await;
}
