//! Checks of the budget of an upstream, and of the studies that find its rates.

use wellhead_upstream::Provider;

use super::super::chain::Upstream;
use super::super::near::suggestion;
use super::super::problem::{Problem, SettingPath};
use super::super::read::listed;
use super::super::value::ReloadTrigger;
use super::Checker;

impl Checker<'_> {
    pub(super) fn budget(&mut self, path: &SettingPath, upstream: &Upstream) {
        let (path, budget) = (path.key("budget"), &upstream.budget);
        let caps = budget.credits_per_day.zip(budget.credits_per_month);
        let reversed = caps.is_some_and(|(day, month)| day > month);
        self.ordered(&path, "credits_per_day", "credits_per_month", reversed);
        self.calls_budget(&path, upstream);
        let place = path.key("plan");
        let Some(plan) = budget.plan.as_ref().filter(|_| !self.touched(&place)) else { return };
        let Some(provider) = upstream.known_provider() else {
            let ids: Vec<_> = Provider::all().iter().map(|provider| provider.id.as_str()).collect();
            let hint = format!("name it with `provider`: {}", listed(&ids));
            self.error(&place, "a plan of a provider that wellhead does not know", hint);
            return;
        };
        if provider.plan(&plan.0).is_none() {
            let names: Vec<_> = provider.plans.iter().map(|plan| plan.name.as_str()).collect();
            let message = format!("`{}` has no such plan", provider.id);
            let hint = suggestion(&plan.0, names.iter().copied(), || match names.is_empty() {
                true => "say what it allows in `budget` instead".to_owned(),
                false => format!("its plans are {}", listed(&names)),
            });
            self.error(&place, message, hint);
        }
    }

    /// How calls are counted, where their rate is not told.
    fn calls_budget(&mut self, path: &SettingPath, upstream: &Upstream) {
        let budget = &upstream.budget;
        let plan = upstream.known_provider().zip(budget.plan.as_ref());
        let planned = plan.and_then(|(provider, plan)| provider.plan(&plan.0)?.calls_per_second);
        if budget.calls_per_second.or(planned).is_some() || self.touched(path) {
            return;
        }
        for key in ["calls_window", "calls_burst"] {
            let message = format!("`{key}` has no effect: `calls_per_second` is not set");
            let hint = "give the rate as well, or remove it";
            self.without_effect(&path.key(key), &message, hint);
        }
    }

    /// A study that finds what is not applied.
    pub(super) fn study(&mut self, path: &SettingPath, upstream: &Upstream) {
        let place = path.key("study");
        if upstream.study.is_none() || self.touched(&place) {
            return;
        }
        if self.settings.reload != ReloadTrigger::Auto {
            let message = "what `study` finds is not applied by itself: `reload` is not `auto`";
            let hint = "set `reload: auto`, or reload after each finding";
            self.warning(&place, message, hint);
        }
        for key in ["credits_per_second", "calls_per_second"] {
            let rate = path.key("budget").key(key);
            if self.given(&rate) {
                let message = format!("what `study` finds is not applied: `budget.{key}` is set");
                let other = self.key_span(&rate);
                let hint = "remove one of them; the metrics tell what was found";
                self.push(Problem::warning(&place, message).hint(hint).other(other, "set here"));
            }
        }
    }
}
