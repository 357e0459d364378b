//! A WebSocket connection of a client, whose caller may lose what let it in.
//!
//! Its caller is judged anew when the keys or the settings of callers have changed, and when the time of its key
//! or token has come: before each message and each notification, and within a second also where nothing is
//! sent ([`SessionBook`]). Then it goes on with what the caller may do now, or is closed.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use wellhead_access::{BegunWork, Caller, HeldPlace, LastingHead, LimitDenied, Rights};
use wellhead_dispatch::now;
use wellhead_proxy::{Subscriber, SubscriberEvent};
use wellhead_server::{ClientSession, SessionClose, SessionEvent};
use wellhead_telemetry::clock;

use crate::control::CallerControl;
use crate::sessions::SessionAlarm;

/// What a WebSocket connection keeps between its messages.
#[derive(Debug)]
pub struct SubscriberSession {
    /// What it is subscribed to; `None` where its path leads to no chain.
    pub(crate) subscriber: Option<Subscriber>,
    /// What its calls come from; `None` where clients are told apart by their addresses alone.
    pub(crate) caller: Option<SessionCaller>,
    /// Its place among the connections of its caller, or none because there is no more.
    pub(crate) place: Result<HeldPlace, LimitDenied>,
}

/// The caller of a connection, which may outlive its key.
#[derive(Debug)]
pub(crate) struct SessionCaller {
    callers: Arc<CallerControl>,
    head: LastingHead,
    alarm: Arc<SessionAlarm>,
    judged: Mutex<JudgedCaller>,
}

/// A caller as it was when it was last looked at.
#[derive(Debug)]
struct JudgedCaller {
    /// `Err`, and from then on, when it may not go on.
    caller: Result<Caller, SessionClose>,
    /// The edition of the keys and settings.
    edition: u64,
}

impl SessionCaller {
    /// The caller of a connection that began with this head.
    pub(crate) fn new(callers: Arc<CallerControl>, caller: Caller, head: LastingHead) -> Self {
        let alarm = callers.sessions().enter(caller.grant.ends_at());
        // Whatever the edition is, it is judged when it is first asked for: keys may have changed since its head.
        let judged = Mutex::new(JudgedCaller { caller: Ok(caller), edition: u64::MAX });
        Self { callers, head, alarm, judged }
    }

    /// The caller as it is now; `Err`, and from then on, when it may not go on with what it began.
    fn renewed(&self, subscriber: Option<&Subscriber>) -> Result<Caller, SessionClose> {
        // Read first: what is judged is of this edition, or of one after it.
        let edition = self.callers.edition();
        let unix = Duration::from_secs(clock::unix_seconds());
        let mut judged = self.judged.lock();
        if judged.edition == edition && !self.alarm.is_due(unix) {
            return judged.caller.clone();
        }
        judged.edition = edition;
        let renewed = judged.caller.as_ref().map_err(|ended| *ended).and_then(|before| {
            let caller = self.callers.renewed(before, &self.head, now(), unix)?;
            let is_over = ends_begun(&caller.grant.rights, &before.grant.rights, subscriber);
            if is_over { Err(SessionClose::KeyEnded) } else { Ok(caller) }
        });
        if let Ok(caller) = &renewed {
            self.alarm.set(caller.grant.ends_at());
        }
        judged.caller = renewed.clone();
        renewed
    }

    /// Ends the connection if it subscribed to what it may not any more: while that was confirmed by an upstream,
    /// the rights of its caller may have changed from these, by which it was allowed.
    fn recheck(&self, allowed_by: &Rights, subscriber: &Subscriber) {
        let mut judged = self.judged.lock();
        let is_over = judged
            .caller
            .as_ref()
            .is_ok_and(|caller| ends_begun(&caller.grant.rights, allowed_by, Some(subscriber)));
        if is_over {
            judged.caller = Err(SessionClose::KeyEnded);
        }
    }
}

impl Drop for SessionCaller {
    fn drop(&mut self) {
        self.callers.sessions().leave(&self.alarm);
    }
}

fn ends_begun(rights: &Rights, old: &Rights, subscriber: Option<&Subscriber>) -> bool {
    subscriber.is_some_and(|subscriber| {
        let is_subscribed = subscriber.is_subscribed();
        rights.ends_begun(old, BegunWork { chain: subscriber.chain_name(), is_subscribed })
    })
}

impl SubscriberSession {
    /// The caller as it is now, `None` where clients are not told apart. `Err`: the connection is closed next, and
    /// does nothing any more.
    pub(crate) fn renewed(&self) -> Result<Option<Caller>, SessionClose> {
        let Some(caller) = &self.caller else { return Ok(None) };
        caller.renewed(self.subscriber.as_ref()).map(Some)
    }

    /// To be called when a message was answered that subscribed to something, with the caller that was allowed to.
    pub(crate) fn recheck(&self, allowed: Option<&Caller>) {
        if let (Some(caller), Some(allowed), Some(subscriber)) =
            (&self.caller, allowed, &self.subscriber)
        {
            caller.recheck(&allowed.grant.rights, subscriber);
        }
    }
}

impl ClientSession for SubscriberSession {
    fn poll_event(&self, cx: &mut Context<'_>) -> Poll<SessionEvent> {
        if self.place.is_err() {
            return Poll::Ready(SessionEvent::Close(SessionClose::OverLimit));
        }
        if let Some(caller) = &self.caller {
            // Before it is judged, so that no change is missed.
            caller.alarm.listen(cx.waker());
        }
        if let Err(close) = self.renewed() {
            return Poll::Ready(SessionEvent::Close(close));
        }
        let Some(subscriber) = &self.subscriber else { return Poll::Pending };
        subscriber.poll_event(cx).map(|event| match event {
            SubscriberEvent::Notification(parts) => SessionEvent::Message(parts),
            SubscriberEvent::TooSlow => SessionEvent::Close(SessionClose::TooSlow),
            SubscriberEvent::Resync => SessionEvent::Close(SessionClose::Resync),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
    use std::task::{Wake, Waker};

    use rand::SeedableRng as _;
    use rand::rngs::StdRng;
    use wellhead_access::{
        AccessPolicy, AccessSettings, AnonymousRule, ApiKey, ClientFacts, CredentialSources,
        KeyRecord, MeterBook, NewKey, Pepper, ProxyTrust, TenantDirectory, TenantSettings,
        UnixSeconds,
    };

    use super::*;
    use crate::control::watch_sessions;
    use crate::origin::KeyOrigin;

    const PAGE: &str = "https://a.example";

    /// A connection with a key that may do all, sent by a page.
    struct Scene {
        control: Arc<CallerControl>,
        record: KeyRecord,
        session: SubscriberSession,
        wakes: Arc<Wakes>,
    }

    #[derive(Default)]
    struct Wakes(AtomicU64);

    impl Wake for Wakes {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    /// Two tenants, and keys in `x-api-key`.
    fn policy(book: &Arc<MeterBook>) -> Arc<AccessPolicy> {
        let tenant = |name: &str| TenantSettings { name: name.to_owned(), ..Default::default() };
        let (tenants, mut problems) = (["acme", "other"].map(tenant), Vec::new());
        let tenants = TenantDirectory::new(&tenants, [], Arc::clone(book), &mut problems);
        let settings = AccessSettings {
            tenants: Arc::new(tenants),
            sources: CredentialSources::default(),
            pepper: Pepper::well_known(),
            tokens: None,
            networks: Vec::new(),
            certificates: Vec::new(),
            anonymous: AnonymousRule::Deny,
            trust: ProxyTrust::default(),
        };
        let policy = AccessPolicy::new(settings, &mut problems);
        policy.unwrap_or_else(|| panic!("{problems:?}"))
    }

    impl Scene {
        fn new() -> Self {
            let book = Arc::<MeterBook>::default();
            let control = Arc::new(CallerControl::new(policy(&book), book, now()));
            let NewKey { id, text, .. } =
                ApiKey::generate("test", &mut StdRng::seed_from_u64(7)).expect("a good word");
            let record = KeyRecord::new(id, Pepper::well_known().hash(text.expose()), "acme");
            assert_eq!(control.take_keys(KeyOrigin::File, vec![record.clone()]), [""; 0]);
            let facts = ClientFacts {
                peer: [192, 0, 2, 1].into(),
                path: "/",
                query: None,
                certificate: &[],
                now: Duration::from_secs(clock::unix_seconds()),
                elapsed: Duration::ZERO,
                keys_are_stale: false,
            };
            let fields = [("x-api-key", text.expose().as_bytes())];
            let caller = control.table().identify(&facts, fields).expect("a good key").caller;
            let head = LastingHead::new(Some(PAGE.as_bytes()), Vec::new());
            let caller = SessionCaller::new(Arc::clone(&control), caller, head);
            let place = Ok(HeldPlace::default());
            let session = SubscriberSession { subscriber: None, caller: Some(caller), place };
            Self { control, record, session, wakes: Arc::default() }
        }

        fn closed(&self) -> Option<SessionClose> {
            let waker = Waker::from(Arc::clone(&self.wakes));
            match self.session.poll_event(&mut Context::from_waker(&waker)) {
                Poll::Pending => None,
                Poll::Ready(SessionEvent::Close(close)) => Some(close),
                Poll::Ready(SessionEvent::Message(_)) => panic!("it is subscribed to nothing"),
            }
        }

        fn is_closed(&self) -> bool {
            let closed = self.closed();
            assert!(closed.is_none_or(|close| close == SessionClose::KeyEnded), "{closed:?}");
            closed.is_some()
        }

        /// Takes the key so into use.
        fn change(&self, change: impl FnOnce(&mut KeyRecord)) {
            let mut record = self.record.clone();
            change(&mut record);
            assert_eq!(self.control.take_keys(KeyOrigin::File, vec![record]), [""; 0]);
        }
    }

    #[track_caller]
    fn check(change: impl FnOnce(&mut KeyRecord), is_closed: bool) {
        let scene = Scene::new();
        assert!(!scene.is_closed());
        scene.change(change);
        assert_eq!(scene.is_closed(), is_closed);
        assert_eq!(scene.session.renewed().is_err(), is_closed, "nor is a message answered");
        // What was closed stays closed.
        scene.change(|_| {});
        assert_eq!(scene.is_closed(), is_closed);
    }

    #[test]
    fn a_connection_is_closed_when_its_key_may_not_be_used_so() {
        let list = |text: &str| Some(vec![text.to_owned()]);
        check(|_| {}, false);
        check(|key| key.note = Some("n".to_owned()), false);
        check(|key| key.rights.origins = list(PAGE), false);
        check(|key| key.rights.origins = list("https://b.example"), true);
        check(|key| key.rights.networks = list("198.51.100.0/24"), true);
        check(|key| key.expires_at = Some(UnixSeconds(1)), true);
        check(|key| key.rights.expires_at = Some(UnixSeconds(1)), true);
        check(|key| key.tenant = "other".to_owned(), true);
    }

    /// The other keys of the source stay, and a source that is not heard of is still not used.
    #[test]
    fn a_connection_is_closed_when_its_key_alone_is_taken() {
        let scene = Scene::new();
        let other = KeyRecord { id: "00000001".parse().unwrap(), ..scene.record.clone() };
        scene.control.take_key(KeyOrigin::File, other.clone());
        assert!(!scene.is_closed());
        let ended = KeyRecord { revoked_at: Some(UnixSeconds(1)), ..scene.record.clone() };
        scene.control.take_key(KeyOrigin::File, ended.clone());
        assert!(scene.is_closed());
        let records = scene.control.records(|_| true);
        assert_eq!(records, [(KeyOrigin::File, ended), (KeyOrigin::File, other.clone())]);
        scene.control.set_stale(KeyOrigin::File, true);
        scene.control.take_key(KeyOrigin::File, other);
        assert!(scene.control.is_stale(KeyOrigin::File) && scene.control.table().keys() == 0);
    }

    /// Its client is not told that the key is wrong: it may connect again later.
    #[test]
    fn a_connection_whose_key_cannot_be_checked_is_told_so() {
        let scene = Scene::new();
        assert_eq!(scene.closed(), None);
        scene.control.set_stale(KeyOrigin::File, true);
        assert_eq!(scene.closed(), Some(SessionClose::KeysUnknown));
        assert_eq!(scene.session.renewed().err(), Some(SessionClose::KeysUnknown));
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_connection_is_woken_within_a_second() {
        let scene = Scene::new();
        let watching = tokio::spawn(watch_sessions(Arc::clone(&scene.control)));
        assert!(!scene.is_closed());
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert_eq!(scene.wakes.0.load(Relaxed), 0, "nothing has changed");
        scene.change(|key| key.revoked_at = Some(UnixSeconds(1)));
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(scene.wakes.0.load(Relaxed), 1);
        assert!(scene.is_closed());
        watching.abort();
    }
}
