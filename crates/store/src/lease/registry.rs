//! The limits that a keeper serves, by number.
//!
//! One that was dropped everywhere else is forgotten.

use std::sync::Arc;

use wellhead_limit::lease::LeasedLimit;

/// No more limits fit: this one is not shared, and goes by its share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no more than {0} limits can be shared")]
pub struct RegistryFull(pub usize);

#[derive(Debug, Clone)]
pub(super) struct Registered {
    /// Its key in the store, without cluster and prefix.
    pub(super) name: Arc<str>,
    pub(super) limit: LeasedLimit,
}

#[derive(Debug, Default)]
pub(super) struct Registry {
    slots: Vec<Option<Registered>>,
    free: Vec<u32>,
    /// Where the next sweep begins.
    swept_to: usize,
}

impl Registry {
    /// The number under which it is known now.
    pub(super) fn add(
        &mut self,
        name: &str,
        limit: &LeasedLimit,
        limits_max: usize,
    ) -> Result<u32, RegistryFull> {
        if self.len() >= limits_max {
            self.sweep(usize::MAX);
        }
        if self.len() >= limits_max {
            return Err(RegistryFull(limits_max));
        }
        let registered = Some(Registered { name: name.into(), limit: limit.clone() });
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize] = registered;
            return Ok(slot);
        }
        self.slots.push(registered);
        Ok(self.slots.len() as u32 - 1)
    }

    pub(super) fn get(&self, slot: u32) -> Option<(Arc<str>, LeasedLimit)> {
        let Registered { name, limit } = self.slots.get(slot as usize)?.as_ref()?;
        limit.is_held_elsewhere().then(|| (Arc::clone(name), limit.clone()))
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &LeasedLimit> {
        self.slots.iter().flatten().map(|registered| &registered.limit)
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Forgets those that are gone among the next `slots_max`.
    pub(super) fn sweep(&mut self, slots_max: usize) {
        for _ in 0..slots_max.min(self.slots.len()) {
            let slot = self.swept_to % self.slots.len();
            self.swept_to = slot + 1;
            let is_gone = |registered: &Registered| !registered.limit.is_held_elsewhere();
            if self.slots[slot].as_ref().is_some_and(is_gone) {
                self.slots[slot] = None;
                self.free.push(slot as u32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use wellhead_limit::lease::LeasedBucket;

    use super::*;

    fn limit() -> LeasedLimit {
        LeasedLimit::Bucket(Arc::new(LeasedBucket::new(1.0, 1.0)))
    }

    #[test]
    fn those_that_are_gone_make_room() {
        let mut registry = Registry::default();
        let kept = limit();
        assert_eq!(registry.add("a", &kept, 3), Ok(0));
        assert_eq!(registry.add("b", &limit(), 3), Ok(1));
        assert_eq!(registry.add("c", &limit(), 3), Ok(2));
        assert_eq!(registry.len(), 3);
        assert!(registry.get(1).is_none() && registry.get(7).is_none());
        let (name, _) = registry.get(0).expect("it is held");
        assert_eq!(&*name, "a");
        let others = [limit(), limit(), limit()];
        assert_eq!(registry.add("d", &others[0], 3), Ok(2));
        assert_eq!(registry.add("e", &others[1], 3), Ok(1));
        assert_eq!(registry.add("f", &others[2], 3), Err(RegistryFull(3)));
        assert_eq!(registry.all().count(), 3);
        registry.sweep(10);
        assert_eq!(registry.len(), 3);
    }
}
