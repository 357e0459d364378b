//! What the claims of a token say, once its signature is known to be the issuer's.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::error::{ClaimRole, JwtError};
use super::key::is_printable;
use super::settings::{AudienceRule, ClaimPointer, JwtIssuer, TenantRule};

/// The longest name of a subject, tenant or quota, and the longest glob or chain.
pub const CLAIM_TEXT_BYTES_MAX: usize = 256;
/// The most methods, and the most chains, that a token may list; one with more is refused.
pub const CLAIM_ITEMS_MAX: usize = 256;
/// The last second of the year 9999: a later instant is a mistake, of milliseconds most often.
const NUMERIC_DATE_MAX: u64 = 253_402_300_799;

type Claims = Map<String, Value>;

/// What a token said whose signature and claims are as the settings demand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VerifiedToken {
    /// Its issuer. Two issuers may use one subject for two people.
    pub issuer: Arc<str>,
    /// Its holder, for logs. Printable.
    pub subject: Arc<str>,
    /// The tenant that pays. Printable.
    pub tenant: Arc<str>,
    /// The name of a set of limits, if the token has one. Printable, and not known to exist.
    pub quota: Option<Arc<str>>,
    /// What it may do.
    pub rights: TokenRights,
    /// Since 1970, without the leeway. `None` if it does not expire.
    pub expires_at: Option<Duration>,
}

/// How a token narrows what its tenant may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TokenRights {
    /// Globs of methods, as written. `None` if the token does not say; an empty list allows nothing.
    pub methods: Option<Vec<Arc<str>>>,
    /// Names or decimal ids of chains, as written. `None` and empty as above.
    pub chains: Option<Vec<Arc<str>>>,
}

/// The seconds since 1970 in which a token is accepted: from the first, up to the second, without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ValidSpan {
    pub(super) from: u64,
    pub(super) until: u64,
}

impl ValidSpan {
    pub(super) fn check(self, now: u64) -> Result<(), JwtError> {
        if now >= self.until {
            Err(JwtError::Expired)
        } else if now < self.from {
            Err(JwtError::NotYetValid)
        } else {
            Ok(())
        }
    }
}

/// The claim `iss`, by which the issuer is found. Not verified.
pub(super) fn issuer(claims: &Claims) -> Result<&str, JwtError> {
    match claims.get("iss") {
        Some(Value::String(issuer)) => Ok(issuer),
        Some(_) => Err(JwtError::ClaimInvalid(ClaimRole::Issuer)),
        None => Err(JwtError::ClaimMissing(ClaimRole::Issuer)),
    }
}

/// Judges verified claims: instants, audience and required claims, then what the rest says.
pub(super) fn judge(
    settings: &JwtIssuer,
    claims: &Claims,
    now: u64,
) -> Result<(VerifiedToken, ValidSpan), JwtError> {
    let (span, expires_at) = valid_span(settings, claims)?;
    span.check(now)?;
    check_audience(&settings.audience, claims)?;
    if !settings.required.iter().all(|matcher| matcher.is_met(claims)) {
        return Err(JwtError::ClaimRefused);
    }
    let map = &settings.claims;
    let required = |pointer: &ClaimPointer, role| {
        name(claims, pointer, role)?.ok_or(JwtError::ClaimMissing(role))
    };
    let tenant = match &map.tenant {
        TenantRule::Claim(pointer) => required(pointer, ClaimRole::Tenant)?,
        TenantRule::Fixed(tenant) => tenant.clone(),
    };
    let optional = |pointer: &Option<ClaimPointer>, role| match pointer {
        Some(pointer) => list(claims, pointer, role),
        None => Ok(None),
    };
    let token = VerifiedToken {
        issuer: settings.issuer.clone(),
        subject: required(&map.subject, ClaimRole::Subject)?,
        tenant,
        quota: match &map.quota {
            Some(pointer) => name(claims, pointer, ClaimRole::Quota)?,
            None => None,
        },
        rights: TokenRights {
            methods: optional(&map.methods, ClaimRole::Methods)?,
            chains: optional(&map.chains, ClaimRole::Chains)?,
        },
        expires_at,
    };
    Ok((token, span))
}

fn valid_span(
    settings: &JwtIssuer,
    claims: &Claims,
) -> Result<(ValidSpan, Option<Duration>), JwtError> {
    let expiry = numeric_date(claims, "exp", ClaimRole::Expiry)?.map(|date| date.whole);
    if expiry.is_none() && settings.exp_required {
        return Err(JwtError::ClaimMissing(ClaimRole::Expiry));
    }
    let begin = numeric_date(claims, "nbf", ClaimRole::NotBefore)?;
    let leeway = settings.leeway.as_secs();
    let span = ValidSpan {
        from: begin.map_or(0, NumericDate::ceil).saturating_sub(leeway),
        until: expiry.map_or(u64::MAX, |expiry| expiry.saturating_add(leeway)),
    };
    Ok((span, expiry.map(Duration::from_secs)))
}

/// Seconds since 1970 (RFC 7519, section 2), which may have a fraction.
#[derive(Clone, Copy)]
struct NumericDate {
    whole: u64,
    fraction: bool,
}

impl NumericDate {
    fn ceil(self) -> u64 {
        self.whole + u64::from(self.fraction)
    }
}

fn numeric_date(
    claims: &Claims,
    claim: &str,
    role: ClaimRole,
) -> Result<Option<NumericDate>, JwtError> {
    let Some(value) = claims.get(claim) else { return Ok(None) };
    let date = match (value.as_u64(), value.as_f64().filter(|_| value.is_f64())) {
        (Some(whole), _) => Some(NumericDate { whole, fraction: false }),
        // Exact: every whole number up to the maximum is one of `f64`.
        (None, Some(date)) if (0.0..=NUMERIC_DATE_MAX as f64).contains(&date) => {
            Some(NumericDate { whole: date as u64, fraction: date.fract() > 0.0 })
        }
        (None, _) => None,
    };
    date.filter(|date| date.whole <= NUMERIC_DATE_MAX).map(Some).ok_or(JwtError::ClaimInvalid(role))
}

fn check_audience(rule: &AudienceRule, claims: &Claims) -> Result<(), JwtError> {
    let AudienceRule::OneOf(wanted) = rule else { return Ok(()) };
    let is_wanted = |audience: &str| wanted.iter().any(|wanted| **wanted == *audience);
    let met = match claims.get("aud") {
        None => return Err(JwtError::ClaimMissing(ClaimRole::Audience)),
        Some(Value::String(audience)) => is_wanted(audience),
        Some(Value::Array(audiences)) => {
            let texts: Option<Vec<&str>> = audiences.iter().map(Value::as_str).collect();
            let texts = texts.ok_or(JwtError::ClaimInvalid(ClaimRole::Audience))?;
            texts.into_iter().any(is_wanted)
        }
        Some(_) => return Err(JwtError::ClaimInvalid(ClaimRole::Audience)),
    };
    if met { Ok(()) } else { Err(JwtError::WrongAudience) }
}

/// A string or an integer that can stand in a log line. `null` is not a missing claim.
fn name(
    claims: &Claims,
    pointer: &ClaimPointer,
    role: ClaimRole,
) -> Result<Option<Arc<str>>, JwtError> {
    pointer.find(claims).map(|value| text(value, role)).transpose()
}

fn text(value: &Value, role: ClaimRole) -> Result<Arc<str>, JwtError> {
    match value {
        Value::String(text) => text_of(text),
        Value::Number(number) if !number.is_f64() => Some(number.to_string().into()),
        Value::Number(_) | Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => {
            None
        }
    }
    .ok_or(JwtError::ClaimInvalid(role))
}

fn text_of(text: &str) -> Option<Arc<str>> {
    let fits = (1..=CLAIM_TEXT_BYTES_MAX).contains(&text.len()) && text.chars().all(is_printable);
    fits.then(|| text.into())
}

/// A list of strings and integers, or one string with spaces between the items.
fn list(
    claims: &Claims,
    pointer: &ClaimPointer,
    role: ClaimRole,
) -> Result<Option<Vec<Arc<str>>>, JwtError> {
    let Some(value) = pointer.find(claims) else { return Ok(None) };
    let invalid = JwtError::ClaimInvalid(role);
    let items: Vec<Arc<str>> = match value {
        Value::Array(items) if items.len() <= CLAIM_ITEMS_MAX => {
            items.iter().map(|item| text(item, role)).collect::<Result<_, _>>()?
        }
        Value::String(words) => {
            let words = words.split(' ').filter(|word| !word.is_empty());
            words.map(text_of).collect::<Option<_>>().ok_or(invalid)?
        }
        Value::Number(_) => vec![text(value, role)?],
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Object(_) => return Err(invalid),
    };
    if items.len() > CLAIM_ITEMS_MAX { Err(invalid) } else { Ok(Some(items)) }
}
