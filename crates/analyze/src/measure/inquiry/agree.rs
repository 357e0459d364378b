//! `agree`: whether the targets answer alike.
//!
//! All questions are about blocks that cannot change any more, so that two honest targets have
//! no reason to differ. What is asked is drawn from what the chain contains (`material`), told
//! apart in one form (`compare`), asked once more before it counts as a difference, and then made
//! as small as it goes (`smaller`).
//!
//! A cell is one question to one target: `{"ask": k, "method": m, "params": p}` with `digest`,
//! equal where two answers mean the same, or `unanswered` and a class. `known` names members that
//! clients write differently. Where it differs there are `against` (index of a target that says
//! otherwise), `path`, `here`, `there`, and the same of a smaller call as `small_method`,
//! `small_params`, `small_path`, `small_here`, `small_there`. `faded` is a difference that was
//! gone when it was asked again. The first cells say which block was the last: `{"pin": n,
//! "how": ..}`, and which are looked into: `{"blocks": "1,2,3"}`. What their answers were the first
//! to tell of the chain is `found`, in the words of `material`: from that a run that was cut draws
//! the same questions (`earlier`).

mod earlier;

use rand::SeedableRng as _;
use rand::rngs::SmallRng;
use rand::seq::SliceRandom as _;
use serde_json::Value;

use self::earlier::EarlierQuestions;
use super::compare::{ComparedAnswers, Parting, TargetReply, shown};
use super::material::Material;
use super::smaller::smaller;
use super::{Factors, factors, plain, quantity, value};
use crate::measure::client::FinishedCall;
use crate::measure::run::{Finished, Panel, PanelEnd, RunError, UnlessStopped};
use crate::work::WorkCall;

/// As records and verdicts have it.
pub const NAME: &str = "agree";
/// Goes up when what it sends changes.
pub const VERSION: u32 = 1;

/// Where nothing is known to be final: so far below the lowest head.
const DISTANCE: u64 = 64;
/// Differences that are made smaller.
const SMALLER_MAX: usize = 20;
/// How often a call is replaced by a smaller one.
const STEPS_MAX: usize = 3;
/// Letters of parameters that a record holds; ours are shorter.
const PARAMS_MAX: usize = 2_000;
/// Calls before the first question: the final block, the head, what is in the last blocks.
const BEFORE: u64 = 3;

/// What is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgreeTerms {
    /// The newest block that is asked about; else the newest that is final everywhere.
    pub block: Option<u64>,
    /// Blocks that are looked into.
    pub blocks: usize,
    /// How far below the newest they may be: every node keeps 128 states.
    pub depth: u64,
    /// Questions.
    pub asks: usize,
    /// What chance comes from.
    pub seed: u64,
}

impl Default for AgreeTerms {
    fn default() -> Self {
        Self { block: None, blocks: 12, depth: 64, asks: 200, seed: 1 }
    }
}

impl AgreeTerms {
    /// Calls to one target at most: each question twice, and those that make differences small.
    pub fn calls_max(&self) -> u64 {
        BEFORE + 2 * self.asks as u64 + (SMALLER_MAX * STEPS_MAX * 2) as u64
    }

    /// Shares of the methods, for a prediction of what it costs.
    pub fn methods() -> Vec<(&'static str, f64)> {
        let kinds = [
            "eth_call",
            "eth_feeHistory",
            "eth_getBalance",
            "eth_getBlockByHash",
            "eth_getBlockByNumber",
            "eth_getBlockReceipts",
            "eth_getBlockTransactionCountByHash",
            "eth_getBlockTransactionCountByNumber",
            "eth_getCode",
            "eth_getLogs",
            "eth_getProof",
            "eth_getStorageAt",
            "eth_getTransactionByBlockNumberAndIndex",
            "eth_getTransactionByHash",
            "eth_getTransactionCount",
            "eth_getTransactionReceipt",
        ];
        kinds.iter().map(|method| (*method, 1.0 / kinds.len() as f64)).collect()
    }
}

/// Asks the panel until all questions are asked, or the run is to end. What was answered before a
/// run was cut is not asked again.
///
/// # Errors
///
/// Where records cannot be written.
pub async fn play(panel: &mut Panel<'_, '_>, terms: &AgreeTerms) -> Result<(), RunError> {
    questions(panel, terms).await.or_else(PanelEnd::failure)
}

async fn questions(panel: &mut Panel<'_, '_>, terms: &AgreeTerms) -> UnlessStopped<()> {
    let earlier = EarlierQuestions::of(panel.take_earlier());
    let pin = pin(panel, terms, &earlier).await?;
    let chosen = choose(panel, terms, pin, &earlier).await?;
    let (material, asked) = (Material::default(), Vec::new());
    let mut table = QuestionTable { panel, earlier, material, asked, smaller: 0 };
    let mut first =
        vec![WorkCall { method: "eth_getBlockByNumber", params: r#"["0x0",false]"#.to_owned() }];
    for number in chosen {
        let params = format!(r#"["0x{number:x}",true]"#);
        first.push(WorkCall { method: "eth_getBlockByNumber", params });
        let params = format!(r#"[{{"fromBlock":"0x{number:x}","toBlock":"0x{number:x}"}}]"#);
        first.push(WorkCall { method: "eth_getLogs", params });
    }
    first.truncate(terms.asks);
    for ask in first {
        table.question(ask, true).await?;
    }
    let mut rng = SmallRng::seed_from_u64(terms.seed);
    let left = terms.asks.saturating_sub(table.asked.len());
    for ask in table.material.asks(pin, left, &table.asked, &mut rng) {
        table.question(ask, false).await?;
    }
    Ok(())
}

/// The newest block that is asked about.
async fn pin(
    panel: &mut Panel<'_, '_>,
    terms: &AgreeTerms,
    earlier: &EarlierQuestions,
) -> UnlessStopped<u64> {
    let cell =
        |block: u64, how: &str| factors([("pin", block.to_string()), ("how", how.to_owned())]);
    if let Some((block, how)) = &earlier.pin {
        for seat in 0..panel.len() {
            if !earlier.pinned.contains(&panel.member(seat).target) {
                panel.close(seat, cell(*block, how), Vec::new(), None)?;
            }
        }
        return Ok(*block);
    }
    let tag =
        WorkCall { method: "eth_getBlockByNumber", params: r#"["finalized",false]"#.to_owned() };
    let finals = panel.ask_all(&tag).await?;
    let heads = panel.ask_all(&WorkCall::bare("eth_blockNumber")).await?;
    let number = |finished: &Finished| quantity(value(finished)?.get("number")?);
    let told: Vec<u64> = finals.iter().filter_map(number).collect();
    let heights: Vec<u64> = heads.iter().filter_map(|head| quantity(&value(head)?)).collect();
    let lowest = heights.iter().min().copied().unwrap_or(0);
    let is_final = told.len() >= heights.len();
    let (block, how) = match (terms.block, told.iter().min()) {
        (Some(block), _) => (block, "as asked for"),
        (None, Some(block)) if is_final && *block > 0 => (*block, "final everywhere"),
        (None, _) if lowest > DISTANCE => (lowest - DISTANCE, "64 below the lowest head"),
        (None, _) => (lowest, "the lowest head, for nothing is final yet"),
    };
    for (seat, (tag, head)) in finals.into_iter().zip(heads).enumerate() {
        let calls = tag.tries.into_iter().chain(head.tries).collect();
        panel.close(seat, cell(block, how), calls, None)?;
    }
    Ok(block)
}

/// Which blocks are looked into: three of four have transactions, as far as that is known.
async fn choose(
    panel: &mut Panel<'_, '_>,
    terms: &AgreeTerms,
    pin: u64,
    earlier: &EarlierQuestions,
) -> UnlessStopped<Vec<u64>> {
    if let Some(chosen) = &earlier.chosen {
        return Ok(chosen.clone());
    }
    let count = terms.depth.clamp(1, pin + 1);
    let lowest = pin + 1 - count;
    let ask =
        WorkCall { method: "eth_feeHistory", params: format!(r#"["0x{count:x}","0x{pin:x}",[]]"#) };
    let mut busy: Vec<u64> = Vec::new();
    let mut told: Vec<Finished> = Vec::new();
    for seat in 0..panel.len() {
        let finished = panel.ask_one(seat, ask.clone()).await?;
        let fees = value(&finished);
        told.push(finished);
        let oldest = fees.as_ref().and_then(|fees| quantity(fees.get("oldestBlock")?));
        let shares = fees.as_ref().and_then(|fees| fees.get("gasUsedRatio")?.as_array());
        if let (Some(oldest), Some(shares)) = (oldest, shares) {
            let used = |share: &Value| share.as_f64().is_some_and(|share| share > 0.0);
            busy = (oldest..).zip(shares).filter(|(_, it)| used(it)).map(|(n, _)| n).collect();
            busy.retain(|number| (lowest..=pin).contains(number));
            break;
        }
    }
    let mut rng = SmallRng::seed_from_u64(terms.seed ^ pin);
    let mut idle: Vec<u64> = (lowest..=pin).filter(|number| !busy.contains(number)).collect();
    busy.shuffle(&mut rng);
    idle.shuffle(&mut rng);
    let most = terms.blocks.max(1);
    let mut chosen: Vec<u64> = busy.iter().copied().take((most * 3).div_ceil(4)).collect();
    let rest = busy.into_iter().skip(chosen.len());
    let others: Vec<u64> = idle.into_iter().take(most - chosen.len()).chain(rest).collect();
    chosen.extend(others.into_iter().take(most - chosen.len()));
    chosen.sort_unstable();
    let blocks: Vec<String> = chosen.iter().map(u64::to_string).collect();
    for (seat, finished) in told.into_iter().enumerate() {
        panel.close(seat, factors([("blocks", blocks.join(","))]), finished.tries, None)?;
    }
    Ok(chosen)
}

/// Where questions are asked.
struct QuestionTable<'t, 'p, 'a> {
    panel: &'t mut Panel<'p, 'a>,
    /// Before the run was cut.
    earlier: EarlierQuestions,
    material: Material,
    asked: Vec<WorkCall>,
    /// Differences that were made smaller.
    smaller: usize,
}

/// A call that shows a difference, and where.
#[derive(Clone)]
struct Disagreement {
    ask: WorkCall,
    parting: Parting,
}

impl QuestionTable<'_, '_, '_> {
    /// One question; `looks` where further ones are drawn from what it finds.
    async fn question(&mut self, ask: WorkCall, looks: bool) -> UnlessStopped<()> {
        let number = self.asked.len();
        let targets: Vec<u32> =
            (0..self.panel.len()).map(|seat| self.panel.member(seat).target).collect();
        if let Some(answered) = self.earlier.answered(number, &ask, &targets) {
            answered.found.iter().for_each(|words| self.material.take_words(words));
            self.smaller += answered.smaller;
            self.asked.push(ask);
            return Ok(());
        }
        let finished = self.panel.ask_all(&ask).await?;
        let mut replies: Vec<TargetReply> = finished.iter().map(TargetReply::of).collect();
        let mut tries: Vec<Vec<FinishedCall>> = finished.into_iter().map(|it| it.tries).collect();
        let mut compared = ComparedAnswers::of(ask.method, &replies);
        let mut faded = false;
        if !compared.apart().is_empty() {
            let again = self.panel.ask_all(&ask).await?;
            replies = again.iter().map(TargetReply::of).collect();
            keep(&mut tries, again.into_iter().enumerate());
            compared = ComparedAnswers::of(ask.method, &replies);
            faded = compared.apart().is_empty();
        }
        let mut cells: Vec<Factors> = Vec::new();
        for (seat, reply) in replies.iter().enumerate() {
            let mut factors = factors([
                ("ask", number.to_string()),
                ("method", ask.method.to_owned()),
                ("params", plain(&ask.params, PARAMS_MAX)),
            ]);
            let mut set = |name: &str, value: String| factors.insert(name.to_owned(), value);
            if !compared.known.is_empty() {
                let known: Vec<&str> = compared.known.iter().copied().collect();
                set("known", known.join(","));
            }
            if faded {
                set("faded", "1".to_owned());
            }
            if let Some(found) = reply.result().filter(|_| looks).and_then(|it| self.look(&ask, it))
            {
                set("found", found);
            }
            match (&compared.digests[seat], reply) {
                (Some(digest), _) => set("digest", digest.clone()),
                (None, TargetReply::Untold(class)) => set("unanswered", class.word().to_owned()),
                (None, TargetReply::Told(_)) => None,
            };
            cells.push(factors);
        }
        self.differences(&ask, &compared, &mut cells, &mut tries).await?;
        for (seat, (factors, tries)) in cells.into_iter().zip(tries).enumerate() {
            self.panel.close(seat, factors, tries, None)?;
        }
        self.asked.push(ask);
        Ok(())
    }

    /// Takes in what an answer tells of the chain, and says what of that is new.
    fn look(&mut self, ask: &WorkCall, result: &Value) -> Option<String> {
        let mut told = Material::default();
        match ask.method {
            "eth_getBlockByNumber" => told.take_block(result),
            "eth_getLogs" => told.take_logs(result),
            _ => {}
        }
        let new = told.without(&self.material);
        let words = new.words();
        self.material.add(new);
        Some(words).filter(|words| !words.is_empty())
    }

    /// Says of each target that differs where it does, and by which smaller call.
    async fn differences(
        &mut self,
        ask: &WorkCall,
        compared: &ComparedAnswers,
        cells: &mut [Factors],
        tries: &mut [Vec<FinishedCall>],
    ) -> UnlessStopped<()> {
        // Two targets that contradict each other do so by the same small call.
        let mut small: Vec<((usize, usize), Option<Disagreement>)> = Vec::new();
        for (seat, against) in compared.apart() {
            let Some(parting) = compared.parting(seat, against) else { continue };
            let target = self.panel.member(against).target;
            describe(&mut cells[seat], "", &parting);
            cells[seat].insert("against".to_owned(), target.to_string());
            let known = small.iter().find(|(pair, _)| *pair == (against, seat));
            let shown = match known {
                Some((_, shown)) => shown.clone().map(Disagreement::turned),
                None if self.smaller < SMALLER_MAX => {
                    self.smaller += 1;
                    let values = [compared.value(seat).cloned(), compared.value(against).cloned()];
                    let whole = Disagreement { ask: ask.clone(), parting };
                    let shown = self.shrink(whole, [seat, against], values, tries).await?;
                    Some(shown).filter(|shown| shown.ask != *ask)
                }
                None => None,
            };
            if let Some(Disagreement { ask, parting }) = &shown {
                cells[seat].insert("small_method".to_owned(), ask.method.to_owned());
                cells[seat].insert("small_params".to_owned(), plain(&ask.params, PARAMS_MAX));
                describe(&mut cells[seat], "small_", parting);
            }
            small.push(((seat, against), shown));
        }
        Ok(())
    }

    /// The smallest call by which these two still differ; the one that is given where there is no
    /// smaller one.
    async fn shrink(
        &mut self,
        from: Disagreement,
        pair: [usize; 2],
        mut values: [Option<Value>; 2],
        tries: &mut [Vec<FinishedCall>],
    ) -> UnlessStopped<Disagreement> {
        let mut smallest = from;
        for _ in 0..STEPS_MAX {
            let sides = [values[0].as_ref(), values[1].as_ref()];
            let mut next = None;
            for ask in smaller(&smallest.ask, &smallest.parting, sides).into_iter().take(2) {
                let asks = pair.map(|seat| (seat, ask.clone()));
                let finished = self.panel.ask(&asks).await?;
                let replies: Vec<TargetReply> = finished.iter().map(TargetReply::of).collect();
                keep(tries, pair.into_iter().zip(finished));
                let compared = ComparedAnswers::of(ask.method, &replies);
                if let Some((here, there)) = compared.apart().first()
                    && let Some(parting) = compared.parting(*here, *there)
                {
                    values = [compared.value(0).cloned(), compared.value(1).cloned()];
                    next = Some(Disagreement { ask, parting });
                    break;
                }
            }
            let Some(next) = next else { break };
            smallest = next;
        }
        Ok(smallest)
    }
}

impl Disagreement {
    /// As the other one of the two sees it.
    fn turned(self) -> Self {
        let Parting { path, here, there } = self.parting;
        Self { parting: Parting { path, here: there, there: here }, ..self }
    }
}

fn keep(tries: &mut [Vec<FinishedCall>], finished: impl Iterator<Item = (usize, Finished)>) {
    for (seat, finished) in finished {
        tries[seat].extend(finished.tries);
    }
}

fn describe(cell: &mut Factors, before: &str, parting: &Parting) {
    cell.insert(format!("{before}path"), parting.path_text());
    cell.insert(format!("{before}here"), shown(parting.here.as_ref()));
    cell.insert(format!("{before}there"), shown(parting.there.as_ref()));
}
