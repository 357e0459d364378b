//! The limits of a subject: what of its quota is used.
//!
//! A call passes the meters of all its subjects, the narrowest first: its address, its key, its tenant. All that
//! apply must let it through, and nothing is taken from any of them if one refuses. A charge is taken before
//! the call is made, at its price; [`CallCharge::settle`] corrects it when more is known.
//!
//! Rates are exact. Caps are checked and spent in two steps, so that calls on several threads at one moment can
//! each pass a cap that has room for one of them: a cap is passed by at most what those calls cost.
//!
//! Rates and caps of keys and tenants, and the places of what is under way, may be shared with other replicas
//! ([`QuotaSharing`]). A call that finds no tokens or no place before the store has said whether there are any is
//! *unanswered*: a try a little later has an answer, or the replica goes by its own share.

mod shared;

use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use wellhead_eth::MethodRow;
use wellhead_limit::lease::{LeaseShortage, LeasedCap};
use wellhead_limit::{Cap, Caps, Gate, Ledger, days_left_in_month, month_of};
use wellhead_prefetch::FetchAddress;

use self::shared::{LimitSharer, PlaceMeter, RateMeter};
use crate::quota::{QuotaBounds, QuotaPlan};

pub use self::shared::QuotaSharing;

const DAY_SECONDS: u64 = 86_400;

/// How long a client waits for a place, where nothing says when one is free.
const PLACE_WAIT: Duration = Duration::from_secs(1);

/// What a meter belongs to. Its words stand in refusals and the state file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[derive(strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum SubjectKind {
    /// An IPv4 address, or the /64 of an IPv6 one.
    Address,
    /// A key, or the subject of a token.
    Key,
    /// A tenant, over all its keys.
    Tenant,
}

wellhead_word::words!(SubjectKind);

/// A tenant or a grant, as what is told of its quota names it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum QuotaSubject {
    /// A tenant, by its name.
    Tenant(Arc<str>),
    /// A key, the subject of a token, or another grant of a tenant.
    Grant {
        /// The name of the tenant.
        tenant: Arc<str>,
        /// The word of its [`GrantKind`](crate::GrantKind).
        kind: &'static str,
        /// Its public id.
        id: Arc<str>,
    },
}

impl QuotaSubject {
    /// The name of the tenant.
    pub fn tenant(&self) -> &str {
        match self {
            Self::Tenant(tenant) | Self::Grant { tenant, .. } => tenant,
        }
    }

    /// The kind of its meter.
    pub fn kind(&self) -> SubjectKind {
        match self {
            Self::Tenant(_) => SubjectKind::Tenant,
            Self::Grant { .. } => SubjectKind::Key,
        }
    }
}

/// Which bound of a quota refused. Its words are those of the settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::VariantArray, strum::VariantNames)]
#[strum(serialize_all = "snake_case")]
pub enum QuotaLimit {
    /// Calls a second.
    #[strum(serialize = "calls_per_second")]
    Calls,
    /// Credits a second.
    #[strum(serialize = "credits_per_second")]
    Credits,
    /// Requests, or calls of a group, under way.
    InFlight,
    /// Credits of the day.
    #[strum(serialize = "credits_per_day")]
    Day,
    /// Credits of the month.
    #[strum(serialize = "credits_per_month")]
    Month,
    /// WebSocket connections.
    Connections,
    /// Subscriptions.
    Subscriptions,
}

wellhead_word::words!(QuotaLimit);

impl QuotaLimit {
    /// The time in which it allows as much as it does; `None` where it bounds what is held.
    pub fn window(self) -> Option<Duration> {
        let days = |days: u64| Some(Duration::from_secs(days * DAY_SECONDS));
        match self {
            Self::Calls | Self::Credits => Some(Duration::from_secs(1)),
            Self::Day => days(1),
            // The longest month.
            Self::Month => days(31),
            Self::InFlight | Self::Connections | Self::Subscriptions => None,
        }
    }
}

/// A limit refused a call, a request or a connection.
#[derive(Debug, Clone, PartialEq)]
pub struct LimitDenied {
    /// What the limit belongs to.
    pub subject: SubjectKind,
    /// Which limit.
    pub limit: QuotaLimit,
    /// The quota, as the settings name it.
    pub quota: Arc<str>,
    /// How much it allows.
    pub most: f64,
    /// When the call may be worth repeating.
    pub retry_after: Duration,
    /// Nothing refuses yet: the store that replicas share was not heard yet. It will have been heard, or given
    /// up, after [`Self::retry_after`], some milliseconds.
    pub is_unanswered: bool,
}

impl LimitDenied {
    /// The fields `RateLimit-Policy` and `RateLimit`, which tell a client of the limit, as
    /// draft-ietf-httpapi-ratelimit-headers (10) writes them: the quota with its window in seconds; that nothing is
    /// left of it, and when more is there.
    pub fn rate_limit_fields(&self) -> [String; 2] {
        let (name, window) = (self.limit.word(), self.limit.window());
        let window = window.map_or_else(String::new, |window| format!(";w={}", window.as_secs()));
        [
            format!("\"{name}\";q={:.0}{window}", self.most.ceil()),
            format!("\"{name}\";r=0;t={:.0}", self.retry_after.as_secs_f64().ceil()),
        ]
    }
}

/// The moment of a call, by both clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MeterTime {
    /// Since an epoch that does not step: for rates.
    pub elapsed: Duration,
    /// Seconds since 1970: for caps.
    pub unix_seconds: u64,
}

impl MeterTime {
    pub(crate) fn day(self) -> u32 {
        u32::try_from(self.unix_seconds / DAY_SECONDS).unwrap_or(u32::MAX)
    }

    /// Until the day or month of a cap is over.
    fn left_of(self, cap: Cap) -> Duration {
        let days = match cap {
            Cap::Day => 1,
            Cap::Month => u64::from(days_left_in_month(self.day())),
        };
        Duration::from_secs(days * DAY_SECONDS - self.unix_seconds % DAY_SECONDS)
    }
}

/// A call, as far as limits go.
#[derive(Debug, Clone, Copy)]
pub struct MeteredCall<'a> {
    /// Its row in the method table.
    pub row: &'a MethodRow,
    /// Its method, as the client wrote it.
    pub method: &'a str,
    /// Its price.
    pub credits: u32,
}

/// What of one set of bounds is used.
#[derive(Debug, Default)]
struct BoundsMeter {
    calls: RateMeter,
    credits: RateMeter,
    in_flight: PlaceMeter,
}

/// A bound that refused, and when it may let the call through.
#[derive(Debug, Clone, Copy)]
struct BoundReached {
    limit: QuotaLimit,
    most: f64,
    wait: Duration,
    is_unanswered: bool,
}

impl BoundReached {
    #[cold]
    fn new(limit: QuotaLimit, most: f64, shortage: LeaseShortage) -> Self {
        let is_unanswered = matches!(shortage, LeaseShortage::Unanswered(_));
        Self { limit, most, wait: shortage.retry_after(), is_unanswered }
    }

    fn held(limit: QuotaLimit, most: u32) -> Self {
        Self::new(limit, f64::from(most), LeaseShortage::Refused(PLACE_WAIT))
    }
}

impl BoundsMeter {
    fn shared(sharer: LimitSharer<'_>, bounds: &QuotaBounds, group: Option<usize>) -> Self {
        let [calls, credits] = sharer.rates(bounds, group);
        Self { calls, credits, in_flight: sharer.places(bounds, group) }
    }

    /// Takes a call and its credits, or neither.
    fn take(&self, bounds: &QuotaBounds, credits: u32, at: Duration) -> Result<(), BoundReached> {
        self.calls.take(bounds.calls, 1, at).map_err(|shortage| {
            let most = bounds.calls.map_or(0.0, |rate| rate.per_second);
            BoundReached::new(QuotaLimit::Calls, most, shortage)
        })?;
        self.credits.take(bounds.credits, credits, at).map_err(|shortage| {
            self.calls.give_back(bounds.calls, 1);
            let most = bounds.credits.map_or(0.0, |rate| rate.per_second);
            BoundReached::new(QuotaLimit::Credits, most, shortage)
        })
    }

    fn give_back(&self, bounds: &QuotaBounds, credits: u32) {
        self.calls.give_back(bounds.calls, 1);
        self.credits.give_back(bounds.credits, credits);
    }

    fn enter(&self, bounds: &QuotaBounds, at: Duration) -> Result<(), BoundReached> {
        let Some(most) = bounds.in_flight else { return Ok(()) };
        self.in_flight
            .enter(most, at)
            .map_err(|shortage| BoundReached::new(QuotaLimit::InFlight, f64::from(most), shortage))
    }

    /// To be called once for each [`Self::enter`] that let something in.
    fn leave(&self, bounds: &QuotaBounds) {
        if bounds.in_flight.is_some() {
            self.in_flight.leave();
        }
    }
}

/// What of its quota a subject has used. Shared by all workers.
///
/// What each call reads and writes stands first, so that it is in few lines of memory.
#[derive(Debug)]
#[repr(C)]
pub struct SubjectMeter {
    plan: Arc<QuotaPlan>,
    all: BoundsMeter,
    ledger: Ledger,
    /// The caps, where all replicas share them; the ledger then tells what this one spent.
    shared_caps: Option<Arc<LeasedCap>>,
    groups: Box<[BoundsMeter]>,
    kind: SubjectKind,
    /// As status and usage name it; never a secret.
    name: Arc<str>,
    connections: Gate,
    subscriptions: Gate,
    /// As what is told of its quota names it; `None` for an address.
    subject: Option<QuotaSubject>,
    /// The last day and month in which a cap refused a call, plus one.
    refused_on: AtomicU32,
    refused_in: AtomicU32,
}

impl SubjectMeter {
    pub(crate) fn new(kind: SubjectKind, name: Arc<str>, plan: Arc<QuotaPlan>) -> Self {
        let groups = plan.quota().groups.iter().map(|_| BoundsMeter::default()).collect();
        Self {
            kind,
            name,
            plan,
            all: BoundsMeter::default(),
            groups,
            ledger: Ledger::default(),
            shared_caps: None,
            connections: Gate::default(),
            subscriptions: Gate::default(),
            subject: None,
            refused_on: AtomicU32::new(0),
            refused_in: AtomicU32::new(0),
        }
    }

    /// Names its subject as what is told of its quota does.
    pub(crate) fn naming(self, subject: &QuotaSubject) -> Self {
        Self { subject: Some(subject.clone()), ..self }
    }

    /// One whose rates, caps and places of what is under way are those of all replicas together.
    pub(crate) fn shared(
        kind: SubjectKind,
        name: &Arc<str>,
        plan: &Arc<QuotaPlan>,
        sharing: &dyn QuotaSharing,
    ) -> Self {
        let quota = plan.quota();
        let sharer = LimitSharer { sharing, kind, subject: name };
        let all = BoundsMeter::shared(sharer, &quota.bounds, None);
        let groups = quota.groups.iter().enumerate();
        let groups =
            groups.map(|(place, group)| BoundsMeter::shared(sharer, &group.bounds, Some(place)));
        let (groups, shared_caps) = (groups.collect(), sharer.caps(quota.caps));
        Self { all, groups, shared_caps, ..Self::new(kind, Arc::clone(name), Arc::clone(plan)) }
    }

    /// Asks for what a call needs.
    #[inline]
    pub(crate) fn fetch_ahead(&self) {
        FetchAddress::of(self).fetch(offset_of!(Self, kind));
    }

    /// What it belongs to.
    pub fn kind(&self) -> SubjectKind {
        self.kind
    }

    /// The name of its subject; never a secret.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// Its subject as what is told of its quota names it; `None` for an address.
    pub fn subject(&self) -> Option<&QuotaSubject> {
        self.subject.as_ref()
    }

    /// Credits that were used of a cap: those of all replicas that share it, as far as this one was told.
    pub fn used(&self, cap: Cap, unix_seconds: u64) -> u64 {
        let day = MeterTime { elapsed: Duration::ZERO, unix_seconds }.day();
        let own = match cap {
            Cap::Day => self.ledger.on_day(day),
            Cap::Month => self.ledger.in_month(day),
        };
        let shared = self.shared_caps.as_ref();
        let all = shared.and_then(|caps| caps.used(cap, Duration::from_secs(unix_seconds)));
        all.map_or(own, |all| all.max(own))
    }

    /// Whether a cap refused a call on this day, or in the month of it.
    pub fn has_refused(&self, cap: Cap, day: u32) -> bool {
        match cap {
            Cap::Day => self.refused_on.load(Relaxed) == day + 1,
            Cap::Month => self.refused_in.load(Relaxed) == month_of(day) + 1,
        }
    }

    /// What its subject may use.
    pub fn quota(&self) -> &crate::Quota {
        self.plan.quota()
    }

    pub(crate) fn plan(&self) -> &Arc<QuotaPlan> {
        &self.plan
    }

    /// The credits of this day and month.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    pub(crate) fn has_cap(&self) -> bool {
        self.quota().caps != Caps::default()
    }

    /// Whether it has spent something of a cap that still counts.
    pub(crate) fn has_spent(&self, at: MeterTime) -> bool {
        self.has_cap() && self.ledger.in_month(at.day()) > 0
    }

    /// Whether nothing holds a place of it, and its rates are as if nothing had been taken.
    pub(crate) fn is_idle(&self, at: Duration) -> bool {
        let is_full = |bounds: &QuotaBounds, meter: &BoundsMeter| {
            meter.in_flight.inside() == 0
                && meter.calls.is_full(bounds.calls, at)
                && meter.credits.is_full(bounds.credits, at)
        };
        let quota = self.quota();
        let mut groups = quota.groups.iter().zip(&self.groups);
        self.connections.inside() == 0
            && self.subscriptions.inside() == 0
            && is_full(&quota.bounds, &self.all)
            && groups.all(|(group, meter)| is_full(&group.bounds, meter))
    }

    #[cold]
    fn denied(&self, reached: BoundReached) -> LimitDenied {
        let BoundReached { limit, most, wait, is_unanswered } = reached;
        let quota = Arc::clone(&self.quota().name);
        LimitDenied { subject: self.kind, limit, quota, most, retry_after: wait, is_unanswered }
    }

    /// Takes what the call costs from all bounds that apply, or from none. Returns its groups.
    fn take(&self, call: MeteredCall<'_>, at: MeterTime) -> Result<u32, LimitDenied> {
        let (quota, credits) = (self.quota(), call.credits);
        self.all.take(&quota.bounds, credits, at.elapsed).map_err(|why| self.denied(why))?;
        let groups = self.plan.groups(call.row, call.method);
        let taken = self.take_groups(groups, credits, at.elapsed);
        let taken = taken.and_then(|()| {
            let taken = self.take_of_caps(credits, at);
            taken.inspect_err(|_| self.give_back_groups(groups, credits))
        });
        match taken {
            Ok(()) => {
                self.ledger.spend(credits.into(), at.day());
                Ok(groups)
            }
            Err(reached) => {
                self.all.give_back(&quota.bounds, credits);
                Err(self.denied(reached))
            }
        }
    }

    fn take_groups(&self, groups: u32, credits: u32, at: Duration) -> Result<(), BoundReached> {
        for (place, bounds, meter) in self.each(groups) {
            let taken = meter.enter(bounds, at).and_then(|()| {
                meter.take(bounds, credits, at).inspect_err(|_| meter.leave(bounds))
            });
            if let Err(reached) = taken {
                self.give_back_groups(groups & ((1 << place) - 1), credits);
                return Err(reached);
            }
        }
        Ok(())
    }

    fn give_back_groups(&self, groups: u32, credits: u32) {
        for (_, bounds, meter) in self.each(groups) {
            meter.leave(bounds);
            meter.give_back(bounds, credits);
        }
    }

    fn each(&self, groups: u32) -> impl Iterator<Item = (usize, &QuotaBounds, &BoundsMeter)> {
        let all = self.quota().groups.iter().zip(&self.groups).enumerate();
        // Most calls are in none.
        let all = all.take(if groups == 0 { 0 } else { self.groups.len() });
        all.filter(move |(place, _)| groups >> place & 1 == 1)
            .map(|(place, (group, meter))| (place, &group.bounds, meter))
    }

    /// Of caps of its own it only looks whether there is room.
    fn take_of_caps(&self, credits: u32, at: MeterTime) -> Result<(), BoundReached> {
        let caps = self.quota().caps;
        let (cap, shortage) = match &self.shared_caps {
            Some(shared) => match shared::take_of_cap(shared, caps, credits, at) {
                Ok(()) => return Ok(()),
                Err(short) => short,
            },
            None => match self.ledger.passed(caps, credits.into(), at.day()) {
                None => return Ok(()),
                Some(cap) => (cap, LeaseShortage::Refused(at.left_of(cap))),
            },
        };
        let (limit, most) = match cap {
            Cap::Day => (QuotaLimit::Day, caps.day),
            Cap::Month => (QuotaLimit::Month, caps.month),
        };
        if matches!(shortage, LeaseShortage::Refused(_)) {
            match cap {
                Cap::Day => self.refused_on.store(at.day() + 1, Relaxed),
                Cap::Month => self.refused_in.store(month_of(at.day()) + 1, Relaxed),
            }
        }
        Err(BoundReached::new(limit, most.unwrap_or_default() as f64, shortage))
    }

    /// Whether one of the groups bounds what is under way.
    fn has_places(&self, groups: u32) -> bool {
        self.each(groups).any(|(_, bounds, _)| bounds.in_flight.is_some())
    }

    fn leave_groups(&self, groups: u32) {
        self.each(groups).for_each(|(_, bounds, meter)| meter.leave(bounds));
    }

    /// Puts all back that a call took.
    fn put_back(&self, groups: u32, credits: u32, at: MeterTime) {
        self.give_back_groups(groups, credits);
        self.all.give_back(&self.quota().bounds, credits);
        self.ledger.give_back(credits.into(), at.day());
        if let Some(caps) = &self.shared_caps {
            caps.give_back(f64::from(credits));
        }
    }

    /// Corrects what a call was charged: `credits` were right instead of `charged`.
    fn correct(&self, groups: u32, charged: u32, credits: u32, at: MeterTime) {
        let correct = |bounds: &QuotaBounds, meter: &BoundsMeter| {
            let Some(rate) = bounds.credits else { return };
            match credits.checked_sub(charged) {
                Some(more) => meter.credits.charge(rate, more, at.elapsed),
                None => meter.credits.give_back(Some(rate), charged - credits),
            }
        };
        correct(&self.quota().bounds, &self.all);
        self.each(groups).for_each(|(_, bounds, meter)| correct(bounds, meter));
        match credits.checked_sub(charged) {
            Some(more) => {
                self.ledger.spend(more.into(), at.day());
                if let Some(caps) = &self.shared_caps {
                    caps.charge(f64::from(more), at.elapsed);
                }
            }
            None => {
                self.ledger.give_back((charged - credits).into(), at.day());
                if let Some(caps) = &self.shared_caps {
                    caps.give_back(f64::from(charged - credits));
                }
            }
        }
    }
}

/// A caller has at most so many meters: of its address, its key and its tenant.
pub const METERS_MAX: usize = 3;

/// What a call has taken from the meters of its caller. Dropped, it gives its places back; what was charged
/// stays charged.
#[derive(Debug, Default)]
pub struct CallCharge<'a> {
    /// The meters, each with the groups of the call in it.
    taken: [Option<(&'a SubjectMeter, u32)>; METERS_MAX],
    credits: u32,
}

impl<'a> CallCharge<'a> {
    /// Takes the call from all `meters`, the first [`METERS_MAX`] of them, or from none.
    pub fn take(
        meters: impl IntoIterator<Item = &'a SubjectMeter>,
        call: MeteredCall<'_>,
        at: MeterTime,
    ) -> Result<Self, LimitDenied> {
        let mut charge = Self { taken: [None; METERS_MAX], credits: call.credits };
        for (place, meter) in meters.into_iter().take(METERS_MAX).enumerate() {
            match meter.take(call, at) {
                Ok(groups) => charge.taken[place] = Some((meter, groups)),
                Err(denied) => {
                    charge.undo(at);
                    return Err(denied);
                }
            }
        }
        Ok(charge)
    }

    #[cold]
    fn undo(mut self, at: MeterTime) {
        for (meter, groups) in std::mem::take(&mut self.taken).into_iter().flatten() {
            meter.put_back(groups, self.credits, at);
        }
    }

    /// What it was charged.
    pub fn credits(&self) -> u32 {
        self.credits
    }

    /// The call turned out to cost `credits`.
    pub fn settle(&mut self, credits: u32, at: MeterTime) {
        if credits != self.credits {
            for (meter, groups) in self.taken.iter().flatten() {
                meter.correct(*groups, self.credits, credits, at);
            }
            self.credits = credits;
        }
    }
}

impl CallCharge<'_> {
    /// Moves the places of its groups to what holds them until the answer is sent. `meters` are those that it was
    /// taken from.
    pub fn hold_until_sent<'m>(
        &mut self,
        meters: impl IntoIterator<Item = &'m Arc<SubjectMeter>>,
        held: &mut SendingPlaces,
    ) {
        for ((taken, meter), place) in self.taken.iter_mut().zip(meters).zip(&mut held.0) {
            if let Some((_, groups)) = taken.take_if(|(meter, groups)| meter.has_places(*groups)) {
                let place = SendingPlace::of(meter, place);
                debug_assert_eq!(place.groups, 0, "one call a request is held until it is sent");
                place.groups = groups;
            }
        }
    }
}

impl Drop for CallCharge<'_> {
    fn drop(&mut self) {
        for (meter, groups) in self.taken.iter().flatten() {
            meter.leave_groups(*groups);
        }
    }
}

/// The places of one request among those that its subjects may have under way. Dropped, it gives them back.
#[derive(Debug, Default)]
pub struct InFlightPlace<'a> {
    meters: [Option<&'a SubjectMeter>; METERS_MAX],
}

impl<'a> InFlightPlace<'a> {
    /// Takes a place of each of `meters`, the first [`METERS_MAX`] of them, or none.
    pub fn take(
        meters: impl IntoIterator<Item = &'a SubjectMeter>,
        at: MeterTime,
    ) -> Result<Self, LimitDenied> {
        let mut places = Self::default();
        for (place, meter) in meters.into_iter().take(METERS_MAX).enumerate() {
            // On an error the places so far are given back by their drop.
            let entered = meter.all.enter(&meter.quota().bounds, at.elapsed);
            entered.map_err(|why| meter.denied(why))?;
            places.meters[place] = Some(meter);
        }
        Ok(places)
    }
}

impl InFlightPlace<'_> {
    /// Moves the places to what holds them until the answer is sent. `meters` are those that they were taken from.
    pub fn hold_until_sent<'m>(
        mut self,
        meters: impl IntoIterator<Item = &'m Arc<SubjectMeter>>,
        held: &mut SendingPlaces,
    ) {
        for ((taken, meter), place) in self.meters.iter_mut().zip(meters).zip(&mut held.0) {
            if taken.take_if(|meter| meter.quota().bounds.in_flight.is_some()).is_some() {
                SendingPlace::of(meter, place).is_request = true;
            }
        }
    }
}

/// The places of a request of which the answer is still being sent: it is under way until then. Dropped, they are
/// given back.
#[derive(Debug, Default)]
pub struct SendingPlaces([Option<SendingPlace>; METERS_MAX]);

/// What a request has of one meter.
#[derive(Debug)]
struct SendingPlace {
    meter: Arc<SubjectMeter>,
    /// It has a place among the requests of the meter.
    is_request: bool,
    /// The groups in which its call has a place.
    groups: u32,
}

impl SendingPlaces {
    /// Whether it holds nothing: no meter bounds the request.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Option::is_none)
    }
}

impl SendingPlace {
    /// The one of `meter`, which has the same place among the meters of the caller each time.
    fn of<'p>(meter: &Arc<SubjectMeter>, place: &'p mut Option<Self>) -> &'p mut Self {
        let none = || Self { meter: Arc::clone(meter), is_request: false, groups: 0 };
        let place = place.get_or_insert_with(none);
        debug_assert!(Arc::ptr_eq(&place.meter, meter), "a request has one caller");
        place
    }
}

impl Drop for SendingPlace {
    fn drop(&mut self) {
        if self.is_request {
            self.meter.all.leave(&self.meter.quota().bounds);
        }
        self.meter.leave_groups(self.groups);
    }
}

impl Drop for InFlightPlace<'_> {
    fn drop(&mut self) {
        for meter in self.meters.iter().flatten() {
            meter.all.leave(&meter.quota().bounds);
        }
    }
}

/// Something that a caller holds for longer than a request: a connection or a subscription. Dropped, it is
/// given back.
#[derive(Debug, Default)]
pub struct HeldPlace {
    meters: Vec<Arc<SubjectMeter>>,
    is_subscription: bool,
}

impl HeldPlace {
    /// A WebSocket connection of each of `meters`, or of none.
    pub fn connection(
        meters: impl IntoIterator<Item = Arc<SubjectMeter>>,
    ) -> Result<Self, LimitDenied> {
        Self { meters: Vec::new(), is_subscription: false }.filled(meters)
    }

    /// A subscription of each of `meters`, or of none.
    pub fn subscription(
        meters: impl IntoIterator<Item = Arc<SubjectMeter>>,
    ) -> Result<Self, LimitDenied> {
        Self { meters: Vec::new(), is_subscription: true }.filled(meters)
    }

    /// Whether it holds nothing: no meter bounds it.
    pub fn is_empty(&self) -> bool {
        self.meters.is_empty()
    }

    fn filled(
        mut self,
        meters: impl IntoIterator<Item = Arc<SubjectMeter>>,
    ) -> Result<Self, LimitDenied> {
        for meter in meters {
            let Some(most) = self.most(&meter) else { continue };
            if !self.gate(&meter).enter(most) {
                let limit = match self.is_subscription {
                    true => QuotaLimit::Subscriptions,
                    false => QuotaLimit::Connections,
                };
                return Err(meter.denied(BoundReached::held(limit, most)));
            }
            self.meters.push(meter);
        }
        Ok(self)
    }

    fn most(&self, meter: &SubjectMeter) -> Option<u32> {
        let quota = meter.quota();
        if self.is_subscription { quota.subscriptions } else { quota.connections }
    }

    fn gate<'m>(&self, meter: &'m SubjectMeter) -> &'m Gate {
        if self.is_subscription { &meter.subscriptions } else { &meter.connections }
    }
}

impl Drop for HeldPlace {
    fn drop(&mut self) {
        self.meters.iter().for_each(|meter| self.gate(meter).leave());
    }
}

#[cfg(test)]
mod tests;
