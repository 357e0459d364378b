//! What a check found: one line for a person, one object for a machine.

use serde_json::{Value, json};

/// How bad it is. Its words stand in the report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[derive(strum::VariantArray, strum::VariantNames)]
pub(crate) enum CheckHealth {
    /// As it should be.
    #[strum(serialize = "ok")]
    Well,
    /// It works, and may not for long, or not at its best.
    #[strum(serialize = "warn")]
    Doubtful,
    /// Something does not work.
    #[strum(serialize = "FAIL")]
    Failed,
}

wellhead_word::words!(CheckHealth);

/// The outcome of one check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    pub(crate) health: CheckHealth,
    /// What was looked at: `config`, `machine`, `ethereum/geth-a`.
    pub(crate) subject: String,
    /// Which check: a stable word.
    pub(crate) check: &'static str,
    /// What was found.
    pub(crate) reason: String,
    /// What to do about it.
    pub(crate) advice: Option<String>,
}

/// A check of something, whose outcome it makes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthCheck<'a> {
    subject: &'a str,
    check: &'static str,
}

impl<'a> HealthCheck<'a> {
    pub(crate) const fn new(subject: &'a str, check: &'static str) -> Self {
        Self { subject, check }
    }

    pub(crate) fn well(self, reason: impl Into<String>) -> Diagnosis {
        let (subject, reason) = (self.subject.to_owned(), reason.into());
        Diagnosis { health: CheckHealth::Well, subject, check: self.check, reason, advice: None }
    }

    /// It works; `advice` says what would be better.
    pub(crate) fn doubtful(
        self,
        reason: impl Into<String>,
        advice: impl Into<String>,
    ) -> Diagnosis {
        let advice = Some(advice.into());
        Diagnosis { health: CheckHealth::Doubtful, advice, ..self.well(reason) }
    }

    /// It does not work; `advice` says what to do.
    pub(crate) fn failed(self, reason: impl Into<String>, advice: impl Into<String>) -> Diagnosis {
        let advice = Some(advice.into());
        Diagnosis { health: CheckHealth::Failed, advice, ..self.well(reason) }
    }
}

/// A table with a line for each.
pub(crate) fn lines(found: &[Diagnosis]) -> String {
    let width = |of: fn(&Diagnosis) -> &str| {
        found.iter().map(|it| of(it).chars().count()).max().unwrap_or_default()
    };
    let (subjects, checks) = (width(|it| &it.subject), width(|it| it.check));
    let line = |it: &Diagnosis| {
        let Diagnosis { health, subject, check, reason, advice } = it;
        let advice = advice.as_ref().map(|advice| format!(" -> {advice}")).unwrap_or_default();
        let line = format!(
            "{:<4}  {subject:<subjects$}  {check:<checks$}  {reason}{advice}",
            health.word()
        );
        // Text of an upstream must not become lines of its own.
        line.chars().map(|c| if c.is_control() { ' ' } else { c }).collect::<String>()
    };
    let mut text: Vec<_> = found.iter().map(line).collect();
    text.push(summary(found));
    text.join("\n")
}

/// `31 checks: 28 ok, 2 warn, 1 FAIL`.
fn summary(found: &[Diagnosis]) -> String {
    let count = |health| found.iter().filter(|it| it.health == health).count();
    let of = |health: CheckHealth| format!("{} {}", count(health), health.word());
    let counts = [CheckHealth::Well, CheckHealth::Doubtful, CheckHealth::Failed].map(of).join(", ");
    format!("{} checks: {counts}", found.len())
}

/// For machines.
pub(crate) fn json(found: &[Diagnosis]) -> Value {
    let checks = found.iter().map(|it| {
        json!({
            "status": it.health.word(),
            "subject": it.subject,
            "check": it.check,
            "reason": it.reason,
            "advice": it.advice,
        })
    });
    json!({
        "ok": !has_failed(found),
        "version": env!("CARGO_PKG_VERSION"),
        "checks": checks.collect::<Vec<_>>(),
    })
}

/// Whether something does not work.
pub(crate) fn has_failed(found: &[Diagnosis]) -> bool {
    found.iter().any(|it| it.health == CheckHealth::Failed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `warn limit: 1024 is low -> raise it`, to compare with.
    pub(crate) fn shown(found: &[Diagnosis]) -> Vec<String> {
        let show = |it: &Diagnosis| {
            let advice = it.advice.as_ref().map(|it| format!(" -> {it}")).unwrap_or_default();
            format!("{} {}: {}{advice}", it.health.word(), it.check, it.reason)
        };
        found.iter().map(show).collect()
    }

    fn some() -> Vec<Diagnosis> {
        vec![
            HealthCheck::new("config", "config").well("1 chain"),
            HealthCheck::new("eth/a", "syncing").doubtful("it\nsyncs", "wait"),
            HealthCheck::new("machine", "files").failed("64 is low", "raise it"),
        ]
    }

    #[test]
    fn each_has_its_line() {
        let expected = "\
ok    config   config   1 chain
warn  eth/a    syncing  it syncs -> wait
FAIL  machine  files    64 is low -> raise it
3 checks: 1 ok, 1 warn, 1 FAIL";
        assert_eq!(lines(&some()), expected);
    }

    #[test]
    fn machines_get_an_object() {
        let told = json(&some());
        assert_eq!(told["ok"], false);
        assert_eq!(told["checks"][2]["status"], "FAIL");
        assert_eq!(told["checks"][1]["advice"], "wait");
        assert_eq!(json(&some()[..2])["ok"], true);
    }
}
