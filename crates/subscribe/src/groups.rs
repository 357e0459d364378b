//! Equal filters once, and which of them a log matches.
//!
//! Subscriptions with equal criteria are one group, so a filter that a thousand clients have is
//! matched once a log. A group is indexed under the names of one place (its addresses, or its
//! topics of one place): that one whose names have the fewest groups so far. Groups that all name
//! one token therefore end up under what they differ in, and a log is compared with few more groups
//! than it matches. Groups that name nothing are compared with each log.
//!
//! No JSON is made for a group: the text of a log is its own, see `logs`.

use std::collections::HashMap;
use std::sync::Arc;

use wellhead_eth::{AddressBytes, BlockNumber, Bloom, TOPICS_MAX, TopicBytes};

use crate::criteria::{LogCriteria, LogCriteriaBits};
use crate::logs::BlockLogs;

/// A group, as long as it has members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(u32);

/// The place whose names a group is indexed under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndexedPlace {
    Address,
    Topic(usize),
    /// It names nothing.
    Wild,
}

#[derive(Debug)]
struct FilterGroup {
    criteria: Arc<LogCriteria>,
    bits: LogCriteriaBits,
    place: IndexedPlace,
    members: usize,
}

/// The groups of one chain.
#[derive(Debug, Default)]
pub struct FilterGroups {
    slots: Vec<Option<FilterGroup>>,
    free: Vec<GroupId>,
    by_criteria: HashMap<Arc<LogCriteria>, GroupId>,
    by_address: HashMap<AddressBytes, Vec<GroupId>>,
    by_topic: [HashMap<TopicBytes, Vec<GroupId>>; TOPICS_MAX],
    wild: Vec<GroupId>,
}

/// Which logs of a block are those of which group.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct BlockMatches {
    /// Sorted.
    pairs: Vec<(GroupId, u32)>,
    /// How many groups were compared with a log.
    pub compared: usize,
}

impl BlockMatches {
    /// The places of the group's logs in the block, ascending.
    pub fn of(&self, group: GroupId) -> impl Iterator<Item = usize> + '_ {
        let from = self.pairs.partition_point(|(it, _)| *it < group);
        let places = self.pairs[from..].iter().take_while(move |(it, _)| *it == group);
        places.map(|(_, place)| *place as usize)
    }

    /// How many logs are matched, counted for each group.
    pub fn len(&self) -> usize {
        self.pairs.len()
    }

    /// Whether no group has a log.
    pub fn is_empty(&self) -> bool {
        self.pairs.is_empty()
    }
}

impl FilterGroups {
    /// Adds a member to the group with these criteria, which is made if it is not there.
    pub fn join(&mut self, criteria: LogCriteria) -> GroupId {
        if let Some(id) = self.by_criteria.get(&criteria) {
            let id = *id;
            self.slot(id).members += 1;
            return id;
        }
        let id = self.free.pop().unwrap_or_else(|| {
            let next =
                u32::try_from(self.slots.len()).expect("fewer groups than memory has room for");
            self.slots.push(None);
            GroupId(next)
        });
        let place = self.least_used_place(&criteria);
        let criteria = Arc::new(criteria);
        self.by_criteria.insert(Arc::clone(&criteria), id);
        match place {
            IndexedPlace::Address => {
                for name in criteria.pattern().addresses() {
                    self.by_address.entry(*name).or_default().push(id);
                }
            }
            IndexedPlace::Topic(place) => {
                for name in &criteria.pattern().topics()[place] {
                    self.by_topic[place].entry(*name).or_default().push(id);
                }
            }
            IndexedPlace::Wild => self.wild.push(id),
        }
        let bits = criteria.bits();
        self.slots[id.0 as usize] = Some(FilterGroup { criteria, bits, place, members: 1 });
        id
    }

    /// Takes a member from a group. The group ends with its last one, and its id may be another
    /// group's then.
    pub fn leave(&mut self, id: GroupId) {
        let group = self.slot(id);
        group.members -= 1;
        if group.members > 0 {
            return;
        }
        let group = self.slots[id.0 as usize].take().expect("looked at just now");
        self.by_criteria.remove(&group.criteria);
        let pattern = group.criteria.pattern();
        match group.place {
            IndexedPlace::Address => {
                pattern.addresses().iter().for_each(|it| take_out(&mut self.by_address, it, id));
            }
            IndexedPlace::Topic(place) => {
                let index = &mut self.by_topic[place];
                pattern.topics()[place].iter().for_each(|it| take_out(index, it, id));
            }
            IndexedPlace::Wild => self.wild.retain(|it| *it != id),
        }
        self.free.push(id);
    }

    /// How many groups there are.
    pub fn len(&self) -> usize {
        self.by_criteria.len()
    }

    /// Whether there is no group.
    pub fn is_empty(&self) -> bool {
        self.by_criteria.is_empty()
    }

    /// About how many bytes the criteria of all groups hold.
    pub fn bytes_held(&self) -> usize {
        let groups = self.by_criteria.keys();
        // Names, their bits, and their entries in the index.
        groups.map(|criteria| size_of::<FilterGroup>() + 3 * criteria.bytes_held()).sum()
    }

    /// Whether a block with this bloom may hold a log of any group; if not, its logs need not be
    /// asked for. `None`: the block has no valid bloom.
    pub fn may_match(&self, number: BlockNumber, bloom: Option<&Bloom>) -> bool {
        self.slots.iter().flatten().any(|group| group.bits.may_match(number, bloom))
    }

    /// Finds the groups of each log of a block: to be done once for all members.
    pub fn matches(&self, logs: &BlockLogs) -> BlockMatches {
        let (number, mut found) = (logs.block().number, BlockMatches::default());
        for (place, log) in (0..).zip(logs.logs()) {
            let named = self.by_address.get(&log.address).into_iter();
            let by_topic = self.by_topic.iter().zip(log.topics());
            let named = named.chain(by_topic.filter_map(|(index, topic)| index.get(topic)));
            // Each group is in the index of one place, and a log has one name there.
            for id in named.chain([&self.wild]).flatten() {
                found.compared += 1;
                let group = self.slots[id.0 as usize].as_ref();
                if group.is_some_and(|group| group.criteria.matches(number, log)) {
                    found.pairs.push((*id, place));
                }
            }
        }
        found.pairs.sort_unstable();
        found
    }

    fn slot(&mut self, id: GroupId) -> &mut FilterGroup {
        self.slots[id.0 as usize].as_mut().expect("a group that has members")
    }

    /// The place whose names lead to the fewest groups, or that has the fewest names.
    fn least_used_place(&self, criteria: &LogCriteria) -> IndexedPlace {
        let pattern = criteria.pattern();
        let addresses = names_used(&self.by_address, pattern.addresses());
        let mut best = addresses.map(|used| (used, IndexedPlace::Address));
        // A filter may name more places than a log has; then it matches nothing.
        for (place, names) in pattern.topics().iter().enumerate().take(TOPICS_MAX) {
            let used = names_used(&self.by_topic[place], names);
            if let Some(used) = used
                && best.is_none_or(|(least, _)| used < least)
            {
                best = Some((used, IndexedPlace::Topic(place)));
            }
        }
        best.map_or(IndexedPlace::Wild, |(_, place)| place)
    }
}

/// How many groups these names lead to, and the names themselves; `None` where there are none.
fn names_used<N: Eq + std::hash::Hash>(
    index: &HashMap<N, Vec<GroupId>>,
    names: &[N],
) -> Option<usize> {
    let used = names.iter().map(|name| 1 + index.get(name).map_or(0, Vec::len));
    (!names.is_empty()).then(|| used.sum())
}

fn take_out<N: Eq + std::hash::Hash>(index: &mut HashMap<N, Vec<GroupId>>, name: &N, id: GroupId) {
    if let Some(groups) = index.get_mut(name) {
        groups.retain(|it| *it != id);
        if groups.is_empty() {
            index.remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use wellhead_eth::hex;

    use super::*;
    use crate::header::tests::id;
    use crate::logs::tests::{bloom_of, read_all};

    /// Criteria for these addresses, and these topics at each place.
    fn criteria(addresses: &[u8], topics: &[&[u8]]) -> LogCriteria {
        let list = |names: &[u8], bytes: usize| {
            let names =
                names.iter().map(|byte| format!("\"{}\"", hex::encode(&vec![*byte; bytes])));
            format!("[{}]", names.collect::<Vec<_>>().join(","))
        };
        let topics: Vec<_> = topics.iter().map(|names| list(names, 32)).collect();
        let addresses = list(addresses, 20);
        let text = format!(r#"{{"address":{addresses},"topics":[{}]}}"#, topics.join(","));
        LogCriteria::read(Some(text.as_bytes())).expect("criteria")
    }

    #[test]
    fn equal_filters_are_one_group() {
        let mut groups = FilterGroups::default();
        let one = groups.join(criteria(&[1, 2], &[]));
        assert_eq!(groups.join(criteria(&[2, 1, 1], &[])), one);
        let other = groups.join(criteria(&[1], &[&[5]]));
        assert_eq!((groups.len(), one == other), (2, false));
        let logs = read_all(id(9, 0), &[(1, &[5]), (2, &[5]), (3, &[5])]);
        let matches = groups.matches(&logs);
        assert_eq!(matches.of(one).collect::<Vec<_>>(), [0, 1]);
        assert_eq!(matches.of(other).collect::<Vec<_>>(), [0]);
        groups.leave(one);
        assert_eq!(groups.matches(&logs), matches, "a member is left");
        groups.leave(one);
        assert_eq!((groups.len(), groups.matches(&logs).of(one).count()), (1, 0));
        groups.leave(other);
        assert!(groups.is_empty() && groups.by_address.is_empty() && groups.bytes_held() == 0);
        assert!(groups.by_topic.iter().all(HashMap::is_empty) && groups.matches(&logs).is_empty());
    }

    #[test]
    fn a_log_is_compared_with_few_more_groups_than_it_matches() {
        let mut groups = FilterGroups::default();
        // Each wallet watches one token for what is sent to it.
        for wallet in 0..250_u8 {
            groups.join(criteria(&[1], &[&[2], &[], &[wallet]]));
        }
        let all: Vec<(u8, &[u8])> = vec![(1, &[2, 9, 7]), (1, &[2, 9, 8]), (4, &[2, 9, 8])];
        let matches = groups.matches(&read_all(id(9, 0), &all));
        assert_eq!(matches.len(), 2);
        assert!(matches.compared <= 3 * (2 + 4), "{}", matches.compared);
    }

    #[test]
    fn blooms_that_exclude_all_groups_save_the_call() {
        let mut groups = FilterGroups::default();
        let (number, bloom) = (BlockNumber(9), bloom_of(&[(1, &[2])]));
        assert!(!groups.may_match(number, Some(&bloom)) && !groups.may_match(number, None));
        let miss = groups.join(criteria(&[5], &[]));
        assert!(!groups.may_match(number, Some(&bloom)));
        assert!(groups.may_match(number, None), "a header without a bloom excludes nothing");
        groups.join(criteria(&[1], &[]));
        groups.leave(miss);
        assert!(groups.may_match(number, Some(&bloom)));
    }

    fn names() -> impl Strategy<Value = Vec<u8>> {
        prop::collection::vec(0..4_u8, 0..3)
    }

    proptest! {
        #[test]
        fn the_index_finds_what_a_comparison_with_each_finds(
            filters in prop::collection::vec(
                (names(), prop::collection::vec(names(), 0..4), any::<bool>()), 0..20),
            logs in prop::collection::vec(
                (0..4_u8, prop::collection::vec(0..4_u8, 0..4)), 0..12),
        ) {
            let mut groups = FilterGroups::default();
            let mut members = Vec::new();
            for (addresses, topics, leaves) in filters {
                let topics: Vec<&[u8]> = topics.iter().map(Vec::as_slice).collect();
                let criteria = criteria(&addresses, &topics);
                members.push((groups.join(criteria.clone()), criteria));
                if leaves {
                    let (first, _) = members.remove(0);
                    groups.leave(first);
                }
            }
            let logs: Vec<_> = logs.iter().map(|(it, topics)| (*it, topics.as_slice())).collect();
            let logs = read_all(id(9, 0), &logs);
            let matches = groups.matches(&logs);
            for (group, criteria) in &members {
                let all = 0..logs.logs().len();
                let number = BlockNumber(9);
                let expected = all.filter(|it| criteria.matches(number, &logs.logs()[*it]));
                prop_assert!(matches.of(*group).eq(expected));
            }
            let distinct: std::collections::BTreeSet<_> =
                members.iter().map(|(group, _)| *group).collect();
            prop_assert_eq!(distinct.len(), groups.len());
        }
    }
}
