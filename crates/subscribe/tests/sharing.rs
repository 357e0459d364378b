//! What many subscribers cost: no allocation for each, and no reader that waits or sees half a
//! change.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use allocation_counter::measure;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use wellhead_eth::{BlockHash, BlockNumber, NumberedBlock, hex};
use wellhead_subscribe::{
    BlockLogs, ChainEvent, ChainJournal, FilterGroups, Header, LogCriteria, LogsReply, LogsScope,
    Notification, Publication, StreamBounds, SubscriptionId,
};

fn block(number: u64, fork: u8) -> NumberedBlock {
    let mut hash = [fork; 32];
    hash[..8].copy_from_slice(&number.to_be_bytes());
    NumberedBlock { number: BlockNumber(number), hash: BlockHash(hash) }
}

fn header(block: NumberedBlock, parent: BlockHash) -> Header {
    let (zero, bloom) = (format!("0x{}", "0".repeat(64)), "0".repeat(512));
    let text = format!(
        r#"{{"parentHash":"{parent}","sha3Uncles":"{zero}","stateRoot":"{zero}",
        "transactionsRoot":"{zero}","receiptsRoot":"{zero}","logsBloom":"0x{bloom}",
        "difficulty":"0x0","number":"{}","gasLimit":"0x1","gasUsed":"0x0","timestamp":"0x1",
        "extraData":"0x","hash":"{}"}}"#,
        block.number.hex(),
        block.hash
    );
    Header::read(text.as_bytes()).expect("a header")
}

/// A block with so many logs of the contract `0x0101…`, each with its index as its only topic.
fn logs(count: u8) -> BlockLogs {
    let (id, address) = (block(5, 0), hex::encode(&[1; 20]));
    let logs = (0..count).map(|index| {
        let topic = hex::encode(&[index; 32]);
        format!(
            r#"{{"address":"{address}","topics":["{topic}"],"data":"0x","blockNumber":"0x5",
            "blockHash":"{}","transactionHash":"{topic}","transactionIndex":"0x0",
            "logIndex":"{index:#x}","removed":false}}"#,
            id.hash
        )
    });
    let list = format!("[{}]", logs.collect::<Vec<_>>().join(","));
    let reply = LogsReply::Logs(list.as_bytes());
    BlockLogs::read(id, reply, LogsScope::Whole(None), 1 << 20).expect("logs")
}

/// How many bytes a subscriber with this id is sent.
fn bytes_for(id: &str, told: &Notification) -> usize {
    Notification::prefix().len() + id.len() + told.suffix().len()
}

#[test]
fn json_is_made_once_however_many_subscribe() {
    let (logs, mut groups) = (logs(50), FilterGroups::default());
    // Each group matches the logs of one topic, the last one all of them.
    let mut members: Vec<_> = (0..50_u8)
        .map(|topic| {
            let text = format!(r#"{{"topics":["{}"]}}"#, hex::encode(&[topic; 32]));
            groups.join(LogCriteria::read(Some(text.as_bytes())).expect("criteria"))
        })
        .collect();
    members.push(groups.join(LogCriteria::read(None).expect("criteria")));
    let mut rng = SmallRng::seed_from_u64(1);
    let subscribers: Vec<_> = (0..1000)
        .map(|place| (members[place % members.len()], SubscriptionId::draw(&mut rng).to_string()))
        .collect();
    let matches = groups.matches(&logs);
    // What is made of the removed logs is made at the first use.
    let first = logs.removed_notification(0);
    let mut written = 0;
    let allocated = measure(|| {
        for (group, id) in &subscribers {
            for place in matches.of(*group) {
                let told = logs.notification(place);
                let taken_back = logs.removed_notification(place);
                written += [told, taken_back].iter().map(|it| bytes_for(id, it)).sum::<usize>();
            }
        }
    });
    assert!(written > 2000 * 300, "{written} bytes");
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    assert_eq!(first.suffix().as_ptr(), logs.removed_notification(0).suffix().as_ptr());
}

#[test]
fn a_head_is_shared_by_all_readers() {
    let mut journal = ChainJournal::default();
    journal.begin(block(0, 0));
    let mut cursor = journal.reader().tip();
    let added = vec![header(block(1, 0), block(0, 0).hash)];
    journal.publish(Publication { removed: 0, added }).expect("linked");
    let readers: Vec<_> = (0..100).map(|_| journal.reader()).collect();
    let mut rng = SmallRng::seed_from_u64(1);
    let id = SubscriptionId::draw(&mut rng).to_string();
    let mut read = 0;
    let allocated = measure(|| {
        for reader in &readers {
            let view = reader.load();
            for (_, event) in view.since(cursor).expect("not too old") {
                let notification = event.added().expect("added").header().notification();
                read += bytes_for(&id, notification);
            }
        }
    });
    assert!(read > 100 * 500, "{read} bytes");
    assert_eq!(allocated.count_total, 0, "{allocated:?}");
    cursor = cursor.next();
    assert_eq!(cursor, journal.reader().tip());
}

/// Readers on other threads follow a chain that is reorganised again and again. Each of them sees
/// a linked chain, and only whole publications: the tip after each load is one that was published.
#[test]
fn readers_never_see_half_a_reorg() {
    const ROUNDS: u64 = 300;
    let bounds = StreamBounds { events_max: 100_000, bytes_max: 64 << 20 };
    let mut journal = ChainJournal::new(bounds);
    journal.begin(block(0, 0));
    let (reader, is_over) = (journal.reader(), AtomicBool::new(false));
    let follow = || {
        let (reader, mut tip) = (reader.clone(), block(0, 0));
        let mut cursor = reader.load().oldest();
        let mut seen = 0_u64;
        loop {
            let was_over = is_over.load(Ordering::Acquire);
            let view = reader.load();
            for (sequence, event) in view.since(cursor).expect("nothing is dropped") {
                assert_eq!(sequence, cursor.sequence());
                let (before, after) = match event {
                    ChainEvent::Began(base) => (*base, *base),
                    ChainEvent::Added(block) => (block.header().parent_id(), block.id()),
                    ChainEvent::Removed(block) => (block.id(), block.header().parent_id()),
                };
                assert_eq!(before, tip);
                (tip, cursor) = (after, cursor.next());
                seen += 1;
            }
            // Each publication ends at a height that no place within a publication has.
            assert!(tip.number.0.is_multiple_of(3) || tip.number.0 == 0, "half a change: {tip}");
            if was_over && cursor == view.tip() {
                return seen;
            }
        }
    };
    thread::scope(|scope| {
        let followers: Vec<_> = (0..2).map(|_| scope.spawn(follow)).collect();
        let mut fork = 1;
        for round in 0..ROUNDS {
            let tip = journal.tip().expect("begun");
            // Every other round takes three blocks back and adds three of another branch.
            let removed = if round % 2 == 1 { 3 } else { 0 };
            let mut parent = journal.hash_at(BlockNumber(tip.number.0 - removed)).expect("known");
            let from = tip.number.0 - removed + 1;
            let mut added = Vec::new();
            for number in from..from + 3 {
                added.push(header(block(number, fork), parent));
                parent = block(number, fork).hash;
            }
            let removed = usize::try_from(removed).expect("small");
            journal.publish(Publication { removed, added }).expect("linked");
            fork = fork.wrapping_add(1).max(1);
        }
        is_over.store(true, Ordering::Release);
        let all = 1 + ROUNDS * 3 + ROUNDS / 2 * 3;
        for follower in followers {
            assert_eq!(follower.join().expect("the reader's checks hold"), all);
        }
    });
}
