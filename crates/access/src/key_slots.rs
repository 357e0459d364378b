//! Grants of keys by their ids.
//!
//! Open addressing over slots of 16 bytes, an id and a pointer each. With more keys than fit the caches, the
//! time of a look-up is that of the lines of memory that it waits for: here one of a small table, and one of
//! the grant, which holds all that the look-up needs (a general map has its control bytes and the entry
//! beside that). Ids are random bits, or bits of a keyed hash, so one multiplication spreads them; clients
//! look up and do not insert.

use std::sync::Arc;

use wellhead_prefetch::FetchAddress;

use crate::caller::AccessGrant;
use crate::key::KeyId;

/// A grant under its id, if one is there.
type KeySlot = Option<(KeyId, Arc<AccessGrant>)>;

/// Slots behind an empty one that are looked at for a grant: at least two of five are filled in a full table.
const NEAR_MAX: usize = 8;

/// Grants by id, each id once.
#[derive(Debug)]
pub(crate) struct KeySlots {
    /// A power of two of them, at most four fifths of which are filled.
    slots: Box<[KeySlot]>,
    len: usize,
    keys_max: usize,
}

impl KeySlots {
    /// Room for `count` keys.
    pub(crate) fn with_capacity(keys: usize) -> Self {
        let slots = (keys + keys / 4 + 1).next_power_of_two();
        let slots = std::iter::repeat_with(|| None).take(slots).collect();
        Self { slots, len: 0, keys_max: keys }
    }

    /// How many keys there are.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The grant of an id.
    #[inline]
    pub(crate) fn get(&self, id: KeyId) -> Option<&Arc<AccessGrant>> {
        self.slots[self.place(id)].as_ref().map(|(_, grant)| grant)
    }

    /// Asks for the place where the look-up of an id begins.
    #[inline]
    pub(crate) fn fetch_ahead(&self, id: KeyId) {
        FetchAddress::of(&self.slots[self.first_place(id)]).fetch(size_of::<KeySlot>());
    }

    /// A grant near the place of an id that is not there, so that looking for it reads as much memory as finding one.
    /// `None` where the next slots are empty.
    pub(crate) fn near(&self, id: KeyId) -> Option<&Arc<AccessGrant>> {
        let (place, mask) = (self.place(id), self.slots.len() - 1);
        let next = (1..=NEAR_MAX).map(|step| &self.slots[(place + step) & mask]);
        next.flatten().map(|(_, grant)| grant).next()
    }

    /// Adds a grant. With an id that is there already, or without room, nothing is added: `false`.
    pub(crate) fn insert(&mut self, id: KeyId, grant: Arc<AccessGrant>) -> bool {
        let place = self.place(id);
        if self.slots[place].is_some() || self.len == self.keys_max {
            return false;
        }
        self.slots[place] = Some((id, grant));
        self.len += 1;
        true
    }

    /// Where an id is, or would be. Ends, as there is always an empty slot.
    fn place(&self, id: KeyId) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = self.first_place(id);
        while self.slots[place].as_ref().is_some_and(|(other, _)| *other != id) {
            place = (place + 1) & mask;
        }
        place
    }

    /// Where an id is unless others came before it.
    fn first_place(&self, id: KeyId) -> usize {
        // A folded multiplication: both halves of the product together depend on all bits of the id.
        let product = u128::from(id.bits()) * 0x9e37_79b9_7f4a_7c15;
        ((product >> 64) ^ product) as usize & (self.slots.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::{GrantKind, Tenant};

    fn id(number: u64) -> KeyId {
        KeyId::of_hash(blake3::hash(&number.to_le_bytes()).as_bytes())
    }

    fn grant(id: KeyId) -> Arc<AccessGrant> {
        let tenant = Arc::new(Tenant::new("acme"));
        Arc::new(AccessGrant::new(GrantKind::Key, id.as_str(), tenant))
    }

    #[test]
    fn a_slot_is_16_bytes() {
        assert_eq!(size_of::<KeySlot>(), 16);
    }

    #[test]
    fn what_is_put_in_is_found() {
        for keys in [0, 1, 2, 3, 4, 100, 3_000] {
            let mut slots = KeySlots::with_capacity(keys);
            for number in 0..keys as u64 {
                assert!(slots.insert(id(number), grant(id(number))), "{number} of {keys}");
                assert!(!slots.insert(id(number), grant(id(number))), "{number} of {keys}");
            }
            assert_eq!(slots.len(), keys);
            assert!(!slots.insert(id(7_000), grant(id(7_000))));
            for number in 0..keys as u64 {
                let found = slots.get(id(number)).map(|grant| &*grant.id);
                assert_eq!(found, Some(id(number).as_str()));
                assert!(slots.get(id(number + 1_000_000)).is_none());
            }
        }
    }

    #[test]
    fn a_grant_is_near_an_id_that_is_not_there() {
        let mut slots = KeySlots::with_capacity(3_000);
        assert!(slots.near(id(7_000)).is_none());
        for number in 0..3_000 {
            assert!(slots.insert(id(number), grant(id(number))));
        }
        let near = (10_000..11_000).filter(|number| slots.near(id(*number)).is_some());
        assert_eq!(near.count(), 1_000);
    }

    #[test]
    fn ids_are_near_their_places() {
        // As full as it gets: just below a power of two.
        let keys = 52_000;
        let mut slots = KeySlots::with_capacity(keys);
        let shared = grant(id(0));
        for number in 0..keys as u64 {
            assert!(slots.insert(id(number), Arc::clone(&shared)));
        }
        let mask = slots.slots.len() - 1;
        assert!(slots.slots.len() * 4 / 5 - 500 < keys, "{}", slots.slots.len());
        let empty = KeySlots::with_capacity(keys);
        let distance = |(place, slot): (usize, &KeySlot)| {
            slot.as_ref().map(|(id, _)| place.wrapping_sub(empty.place(*id)) & mask)
        };
        let distances: Vec<_> = slots.slots.iter().enumerate().filter_map(distance).collect();
        let sum: usize = distances.iter().sum();
        // 2 on average are expected at this load.
        assert!(sum < distances.len() * 3, "{sum} steps for {} keys", distances.len());
    }
}
