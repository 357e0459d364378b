//! All meters, by subject: they outlive the snapshots of keys.
//!
//! A new snapshot asks for its meters by name and gets those that are there, with what was used; one whose
//! quota changed is made anew and keeps its day and month.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use wellhead_limit::{Ledger, Pages, month_of};

use crate::meter::{MeterTime, QuotaSharing, QuotaSubject, SubjectKind, SubjectMeter};
use crate::networks::subject_of;
use crate::quota::QuotaPlan;

/// Addresses with a meter of their own, at most. Beyond it one that has used nothing lately gives its place to
/// a newcomer, else any one that has no call under way, and then begins anew.
pub const ADDRESSES_MAX: usize = 65_536;

/// Keys and tenants with a meter, at most. Beyond it [`MeterBook::sweep`] forgets some that no grant holds, even
/// if they have spent something of a cap.
pub const NAMED_MAX: usize = 262_144;

/// Threads that meter different addresses seldom meet.
const SHARDS: usize = 16;

/// So many are looked at to find one that may give its place.
const LOOKED_AT_MAX: usize = 64;

/// What tells the meter of one key or tenant from others.
type SubjectName = (SubjectKind, Arc<str>);

/// What tells one address's meter from others: whose quota it is, and the address or /64.
type AddressKey = (u64, IpAddr);

/// The meters of keys and tenants.
#[derive(Debug, Default)]
struct NamedMeters {
    meters: HashMap<SubjectName, Arc<SubjectMeter>>,
    /// What those spent before a restart that have no meter yet.
    kept: HashMap<SubjectName, Ledger>,
}

/// Where all meters are found. Shared by all workers.
#[derive(Debug)]
pub struct MeterBook {
    named: Mutex<NamedMeters>,
    addresses: [Mutex<HashMap<AddressKey, Arc<SubjectMeter>>>; SHARDS],
    addresses_max: usize,
    /// By which replicas share the limits of keys and tenants.
    sharing: Option<Arc<dyn QuotaSharing>>,
    /// With a seed of this process: no client can choose addresses that share a shard.
    hasher: RandomState,
}

impl Default for MeterBook {
    fn default() -> Self {
        Self::for_addresses(ADDRESSES_MAX)
    }
}

impl MeterBook {
    fn for_addresses(addresses_max: usize) -> Self {
        Self {
            named: Mutex::default(),
            addresses: Default::default(),
            addresses_max,
            sharing: None,
            hasher: RandomState::new(),
        }
    }

    /// A book whose keys and tenants share their rates and caps with those of other replicas.
    pub fn sharing(sharing: Arc<dyn QuotaSharing>) -> Self {
        Self { sharing: Some(sharing), ..Self::default() }
    }

    /// The meter of a tenant or a grant: the one that is there if its quota is this one. A grant's has a `name` of
    /// its own, as one of another issuer may have its id.
    pub fn named(
        &self,
        subject: &QuotaSubject,
        name: &Arc<str>,
        plan: &Arc<QuotaPlan>,
    ) -> Arc<SubjectMeter> {
        let mut named = self.named.lock();
        let NamedMeters { meters, kept } = &mut *named;
        let key = (subject.kind(), Arc::clone(name));
        let known = meters.get(&key);
        if let Some(known) = known
            && known.quota() == plan.quota()
            && known.subject() == Some(subject)
        {
            return Arc::clone(known);
        }
        let meter = match &self.sharing {
            Some(sharing) => SubjectMeter::shared(subject.kind(), name, plan, &**sharing),
            None => SubjectMeter::new(subject.kind(), Arc::clone(name), Arc::clone(plan)),
        };
        let before = kept.remove(&key).map(|ledger| ledger.pages());
        if let Some(pages) = known.map(|known| known.ledger().pages()).or(before) {
            meter.ledger().reopen(pages);
        }
        let meter = Arc::new(meter.naming(subject));
        meters.insert(key, Arc::clone(&meter));
        meter
    }

    /// Adds what a key or a tenant spent before a restart, now or when it has a meter. Pages of days and months
    /// that are over, or to come, say nothing; beyond [`NAMED_MAX`] of those without a meter it is lost.
    pub fn restore(&self, kind: SubjectKind, name: &Arc<str>, pages: Pages, at: MeterTime) {
        let mut named = self.named.lock();
        let NamedMeters { meters, kept } = &mut *named;
        let key = (kind, Arc::clone(name));
        if let Some(meter) = meters.get(&key) {
            meter.ledger().restore(pages, at.day());
        } else if pages.month == month_of(at.day())
            && (kept.len() < NAMED_MAX || kept.contains_key(&key))
        {
            kept.entry(key).or_default().restore(pages, at.day());
        }
    }

    /// The meter of an address that uses what `holder` grants.
    pub fn address(
        &self,
        holder: u64,
        address: IpAddr,
        plan: &Arc<QuotaPlan>,
        at: Duration,
    ) -> Arc<SubjectMeter> {
        let key = (holder, subject_of(address));
        let shard = (self.hasher.hash_one(key) as usize) % SHARDS;
        let mut meters = self.addresses[shard].lock();
        if let Some(known) = meters.get(&key)
            && Arc::ptr_eq(known.plan(), plan)
        {
            return Arc::clone(known);
        }
        if meters.len() >= (self.addresses_max / SHARDS).max(1) {
            make_room(&mut meters, at);
        }
        let name = address.to_canonical().to_string().into();
        let meter = SubjectMeter::new(SubjectKind::Address, name, Arc::clone(plan));
        let meter = Arc::new(meter);
        meters.insert(key, Arc::clone(&meter));
        meter
    }

    /// What each key and tenant with a cap has spent that still counts, to be kept over a restart.
    pub fn pages(&self, at: MeterTime) -> Vec<(SubjectKind, Arc<str>, Pages)> {
        let named = self.named.lock();
        let spent = named.meters.values().filter(|meter| meter.has_spent(at));
        let spent =
            spent.map(|meter| (meter.kind(), Arc::clone(meter.name()), meter.ledger().pages()));
        let kept = named.kept.iter().filter(|(_, ledger)| ledger.in_month(at.day()) > 0);
        let kept = kept.map(|((kind, name), ledger)| (*kind, Arc::clone(name), ledger.pages()));
        spent.chain(kept).collect()
    }

    /// All keys and tenants that have a meter.
    pub fn all(&self) -> Vec<Arc<SubjectMeter>> {
        self.named.lock().meters.values().map(Arc::clone).collect()
    }

    /// Forgets meters that no grant holds and that have nothing to remember.
    pub fn sweep(&self, at: MeterTime) {
        let mut named = self.named.lock();
        let is_held = |meter: &Arc<SubjectMeter>| Arc::strong_count(meter) > 1;
        named.kept.retain(|_, ledger| ledger.in_month(at.day()) > 0);
        let meters = &mut named.meters;
        meters
            .retain(|_, meter| is_held(meter) || meter.has_spent(at) || !meter.is_idle(at.elapsed));
        if meters.len() > NAMED_MAX {
            meters.retain(|_, meter| is_held(meter));
        }
        drop(named);
        for meters in &self.addresses {
            meters.lock().retain(|_, meter| is_held(meter) || !meter.is_idle(at.elapsed));
        }
    }
}

/// Removes those among the first few that are idle; if none is, one that nothing holds.
fn make_room(meters: &mut HashMap<AddressKey, Arc<SubjectMeter>>, at: Duration) {
    let looked_at: Vec<_> = meters.iter().take(LOOKED_AT_MAX).collect();
    let is_free = |meter: &Arc<SubjectMeter>| Arc::strong_count(meter) == 1;
    let idle =
        |(_, meter): &&(&AddressKey, &Arc<SubjectMeter>)| is_free(meter) && meter.is_idle(at);
    let mut leave: Vec<AddressKey> = looked_at.iter().filter(idle).map(|(key, _)| **key).collect();
    if leave.is_empty() {
        let any = looked_at.iter().find(|(_, meter)| is_free(meter)).or(looked_at.first());
        leave.extend(any.map(|(key, _)| **key));
    }
    for key in leave {
        meters.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use wellhead_eth::MethodTable;
    use wellhead_limit::Caps;

    use crate::meter::{CallCharge, MeteredCall};
    use crate::quota::{Quota, QuotaBounds, QuotaRate};

    const NOW: MeterTime =
        MeterTime { elapsed: Duration::from_secs(100), unix_seconds: 20_786 * 86_400 };

    fn plan(day: Option<u64>, calls: f64) -> Arc<QuotaPlan> {
        let calls = Some(QuotaRate::new(calls, 1.0));
        let bounds = QuotaBounds { calls, ..QuotaBounds::default() };
        let caps = Caps { day, month: None };
        Arc::new(QuotaPlan::new(Quota { bounds, caps, ..Quota::default() }))
    }

    fn key(id: &str) -> QuotaSubject {
        QuotaSubject::Grant { tenant: "acme".into(), kind: "key", id: id.into() }
    }

    fn is_let_through(meter: &SubjectMeter, at: MeterTime) -> bool {
        let row = MethodTable::standard().row("eth_call");
        let call = MeteredCall { row, method: "eth_call", credits: 4 };
        CallCharge::take([meter], call, at).is_ok()
    }

    #[test]
    fn a_subject_keeps_its_meter_while_its_quota_stays() {
        let book = MeterBook::default();
        let name: Arc<str> = "acme".into();
        let acme = QuotaSubject::Tenant(Arc::clone(&name));
        let meter = |plan: &Arc<QuotaPlan>| book.named(&acme, &name, plan);
        let before = meter(&plan(Some(8), 1.0));
        assert!(is_let_through(&before, NOW) && !is_let_through(&before, NOW));
        assert!(Arc::ptr_eq(&before, &meter(&plan(Some(8), 1.0))), "read again from the settings");
        // Another quota: the rate begins anew, the day goes on.
        let after = meter(&plan(Some(8), 2.0));
        assert!(!Arc::ptr_eq(&before, &after));
        assert!(is_let_through(&after, NOW));
        let later = MeterTime { elapsed: NOW.elapsed * 2, ..NOW };
        assert!(!is_let_through(&after, later), "eight credits of the day are spent");
        assert_eq!(book.pages(NOW).len(), 1);
        assert_eq!(book.all().len(), 1);
    }

    #[test]
    fn what_was_spent_before_a_restart_counts_when_its_meter_is_there() {
        let (before, after) = (MeterBook::default(), MeterBook::default());
        let named = |book: &MeterBook, name: &str| {
            book.named(&key(name), &name.into(), &plan(Some(8), 1.0))
        };
        for name in ["early", "late", "never"] {
            assert!(is_let_through(&named(&before, name), NOW));
        }
        named(&before, "unused");
        let mut pages = before.pages(NOW);
        pages.sort_unstable_by(|(_, one, _), (_, other, _)| one.cmp(other));
        assert_eq!(pages.len(), 3, "of what spent nothing nothing is kept");
        let early = named(&after, "early");
        for (kind, name, pages) in &pages {
            after.restore(*kind, name, *pages, NOW);
        }
        let spent = |meter: &SubjectMeter| meter.ledger().on_day(NOW.day());
        assert_eq!((spent(&early), spent(&named(&after, "late"))), (4, 4));
        assert_eq!(spent(&named(&after, "late")), 4, "once");
        let mut again = after.pages(NOW);
        again.sort_unstable_by(|(_, one, _), (_, other, _)| one.cmp(other));
        assert_eq!(again, pages, "also of the one that never came");
        let december = MeterTime { unix_seconds: NOW.unix_seconds + 4 * 86_400, ..NOW };
        after.sweep(december);
        assert!(after.pages(december).is_empty());
        let tomorrow = MeterBook::default();
        let next_day = MeterTime { unix_seconds: NOW.unix_seconds + 86_400, ..NOW };
        tomorrow.restore(SubjectKind::Key, &"early".into(), pages[0].2, next_day);
        let meter = named(&tomorrow, "early");
        let spent_since = |day| (meter.ledger().on_day(day), meter.ledger().in_month(day));
        assert_eq!(spent_since(next_day.day()), (0, 4), "the month goes on");
        let stale = MeterBook::default();
        stale.restore(SubjectKind::Key, &"early".into(), pages[0].2, december);
        assert_eq!(spent(&named(&stale, "early")), 0);
    }

    #[test]
    fn what_nothing_remembers_is_forgotten() {
        let book = MeterBook::default();
        let later = MeterTime { elapsed: NOW.elapsed * 2, ..NOW };
        let named = |name: &str, day| book.named(&key(name), &name.into(), &plan(day, 1.0));
        let held = named("held", None);
        assert!(is_let_through(&named("spent", Some(9)), NOW));
        assert!(is_let_through(&named("idle", None), NOW));
        book.sweep(NOW);
        assert_eq!(book.all().len(), 3, "the rate of the idle one is not full yet");
        book.sweep(later);
        assert_eq!(book.all().len(), 2);
        drop(held);
        book.sweep(MeterTime { unix_seconds: NOW.unix_seconds + 3 * 86_400, ..later });
        assert!(book.all().is_empty(), "it is December");
    }

    #[test]
    fn addresses_have_meters_of_their_own_up_to_a_bound() {
        let book = MeterBook::for_addresses(16 * 4);
        let plan = plan(None, 1.0);
        let of = |address: &str, at: Duration| {
            book.address(7, address.parse().expect("an address"), &plan, at)
        };
        let first = of("192.0.2.1", NOW.elapsed);
        assert!(Arc::ptr_eq(&first, &of("::ffff:192.0.2.1", NOW.elapsed)));
        assert!(!Arc::ptr_eq(&first, &of("192.0.2.2", NOW.elapsed)));
        assert!(Arc::ptr_eq(&of("2001:db8::1", NOW.elapsed), &of("2001:db8::ffff", NOW.elapsed)));
        let other = book.address(8, "192.0.2.1".parse().expect("an address"), &plan, NOW.elapsed);
        assert!(!Arc::ptr_eq(&first, &other), "of another holder");
        // None of these is idle, and a flood of others comes: some give their places, the bound holds.
        for host in 0..2_000_u32 {
            let meter = of(&format!("198.51.{}.{}", host / 256, host % 256), NOW.elapsed);
            assert!(is_let_through(&meter, NOW));
        }
        let addresses = || book.addresses.iter().map(|meters| meters.lock().len()).sum::<usize>();
        assert!(addresses() <= 16 * 4, "{}", addresses());
        book.sweep(MeterTime { elapsed: NOW.elapsed * 2, ..NOW });
        assert!(addresses() <= 2, "those that are still held: {}", addresses());
    }
}
