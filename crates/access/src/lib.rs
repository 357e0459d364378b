//! Callers: what a request may do, and how much of it.
//!
//! A request becomes one [`Caller`] from its head alone, before its body is read; nothing later looks
//! at a header. A *tenant* has limits and usage. A *grant* is what a key, the subject of a token, a
//! client certificate, a network or an anonymous client holds: it belongs to a tenant and may narrow
//! what the tenant may do. A caller is a grant and the address that uses it.
//!
//! ```text
//! head ─ client address ─┬─ networks ──────────── denied: 403
//!                        ├─ credential ─ keys ─── unknown, expired: 401
//!                        │               jwt      two different ones: 401
//!                        └─ no credential ─────── network, anonymous, or 401
//!                                                    │
//!                                      Caller { grant, address }
//!                                                    │
//! body ─ parse ─ per call: rights (chain, method, contracts, …) ── 403
//!                          limits, all or none taken ───────────── 429
//!                          usage, at the end
//! ```
//!
//! The modules in that order:
//!
//! - `networks`: addresses in a sorted table, longest prefix first
//! - `client_address`, `proxy_header`: the client's address behind proxies that are trusted
//! - `credential`: where a head carries a secret; which one it is
//! - `key`: the text of a key, its check sum, and the keyed hash that is kept of it
//! - `key_history`: what came of a source of keys, so that an older copy is known
//! - `token`: what the table asks of a verifier of signed tokens
//! - `jwt`: signed tokens and the keys that verify them
//! - `rights`: chains, methods, contracts, origins and sizes
//! - `table`: all keys, tenants and networks as one immutable snapshot, and the look-up in it
//! - `quota`, `price`: the limits of a subject as the settings name them; what a call costs
//! - `meter`, `meter_book`, `denial_counts`: what an address, a key, a tenant has used of its quota, and what it
//!   was refused
//! - `quota_watch`: which quotas are used to 80 and 100 %, each told once
//! - `usage`: what was used, by tenant, key, chain, method, outcome and minute
//!
//! Nothing here opens a socket, reads a clock or a file, sleeps or spawns: the snapshot is built by
//! the caller, which swaps it as a whole, and every instant is told.
//!
//! What it costs a call with a key: the scan of the head for at most three fields and the path, one
//! check sum of 40 bytes, one look-up in a map, one keyed hash of 26 bytes (0.1 µs), one clone of an
//! `Arc`, and one atomic operation for each limit that applies; no allocation. An unknown key takes
//! the path of a known one.

mod caller;
mod client_address;
mod credential;
mod denial_counts;
mod effect_class;
mod hashed_already;
pub mod jwt;
mod key;
mod key_check;
mod key_hash;
mod key_history;
mod key_record;
mod key_slots;
mod meter;
mod meter_book;
mod method_rights;
mod networks;
mod origin;
mod policy;
mod price;
mod proxy_header;
mod quota;
mod quota_watch;
mod right_denied;
mod rights;
mod rights_settings;
mod table;
mod tenants;
mod token;
mod unix_seconds;
pub mod usage;

pub use caller::{AccessGrant, Caller, GrantKind, GrantMeters, Tenant};
pub use client_address::{PROXY_HOPS_MAX, ProxyTrust, ProxyTrustHeader};
pub use credential::{
    BareTarget, CREDENTIAL_BYTES_MAX, Credential, CredentialFinder, CredentialKind,
    CredentialSources, CredentialText, DifferentCredentials, is_secret_protocol,
};
pub use denial_counts::DenialCounts;
pub use effect_class::EffectClass;
pub use key::{ApiKey, KEY_ENV_BYTES_MAX, KEY_PREFIX, KeyId, KeyTextError, NewKey, mask_keys};
pub use key_hash::{
    FOREIGN_KEY_BYTES_MAX, FOREIGN_KEY_BYTES_MIN, ForeignKeyError, HashTextError, KeyHash, Pepper,
};
pub use key_history::{ENDED_KEYS_MAX, EndedKey, FollowedKeys, KeyHistory, KeyReturn, SecretMark};
pub use key_record::{KeyRecord, PreviousHash, RECORD_BYTES_MAX};
pub use meter::{
    CallCharge, HeldPlace, InFlightPlace, LimitDenied, METERS_MAX, MeterTime, MeteredCall,
    QuotaLimit, QuotaSharing, QuotaSubject, SendingPlaces, SubjectKind, SubjectMeter,
};
pub use meter_book::{ADDRESSES_MAX, MeterBook, NAMED_MAX};
pub use networks::{
    NETWORKS_MAX, NetworkSet, NetworkSetError, NetworkTextError, parse_network, subject_of,
};
pub use origin::{OriginPattern, OriginPatternError};
pub use policy::{
    AccessPolicy, AccessSettings, AnonymousRule, CertificateName, CertificateNameError,
    CertificateRule, NetworkAction, NetworkRule,
};
pub use price::{PriceList, PriceRule};
pub use proxy_header::{
    PROXY_HEADER_BYTES_MAX, PROXY_V1_BYTES_MAX, PROXY_V2_REST_BYTES_MAX, ProxyHeader,
    ProxyHeaderError,
};
pub use quota::{QUOTA_GROUPS_MAX, Quota, QuotaBounds, QuotaGroup, QuotaPlan, QuotaRate};
pub use quota_watch::{QuotaCrossing, QuotaPeriod, QuotaShare, QuotaWatch};
pub use right_denied::RightDenied;
pub use rights::{BegunWork, Rights, RightsLayer};
pub use rights_settings::{MethodRightsSettings, RIGHTS_ITEMS_MAX, RightsSettings};
pub use table::{
    AccessTable, BadKeyReason, BuiltAccess, CallerDeniedReason, ClientFacts, Denied,
    IdentifiedClient, KEYS_MAX, LastingHead,
};
pub use tenants::{ANONYMOUS, GrantTerms, TENANT_BYTES_MAX, TenantDirectory, TenantSettings};
pub use token::{TokenRefusal, TokenVerifier};
pub use unix_seconds::UnixSeconds;
