//! A filter as text, for a restart and for other replicas.

use std::sync::Arc;

use bytes::Bytes;
use wellhead_eth::{BlockNumber, NumberedBlock};
use wellhead_jsonrpc::raw;

use crate::id::VirtualFilterId;
use crate::poll::{FilterPosition, FilterQuery, ToldBlock, VirtualFilterKind};

/// Flags of a block: see [`ToldBlock`].
const IS_TIP: u64 = 1;
const IS_PROVEN: u64 = 2;

/// A filter as it is written down. Logs told before that are not in it cannot be taken back afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedFilter {
    pub(crate) id: VirtualFilterId,
    pub(crate) client: u64,
    pub(crate) kind: VirtualFilterKind,
    /// How far it has told the chain.
    pub(crate) position: FilterPosition,
}

impl SavedFilter {
    /// Which filter it is.
    pub fn id(&self) -> VirtualFilterId {
        self.id
    }

    /// The filter as a JSON object.
    pub fn to_json(&self) -> String {
        let Self { id, client, kind, position } = self;
        let object = match kind {
            VirtualFilterKind::Blocks => "null",
            VirtualFilterKind::Logs(filter) => filter.object(),
        };
        let mut json =
            format!(r#"{{"id":"{id}","client":"{client:#x}","filter":{object},"blocks":["#);
        for (place, told) in position.blocks().enumerate() {
            json.push_str(if place > 0 { "," } else { "" });
            write_block(told, &mut json);
        }
        json.push_str("]}");
        json
    }

    /// Reads what [`SavedFilter::to_json`] wrote; `None` for anything else.
    pub fn read(object: &[u8]) -> Option<Self> {
        let field = |name| raw::field(object, name);
        let filter = field("filter")?;
        let kind = match raw::is_null(filter) {
            true => VirtualFilterKind::Blocks,
            false => VirtualFilterKind::Logs(Arc::new(FilterQuery::read(Some(filter)).ok()?)),
        };
        let told: Option<Vec<_>> = raw::items(field("blocks")?).map(read_block).collect();
        let told = told?;
        let is_ascending = told.is_sorted_by(|one, next| one.block.number < next.block.number);
        Some(Self {
            id: VirtualFilterId::parse(&raw::string(field("id")?)?)?,
            client: raw::quantity(field("client")?)?,
            kind,
            position: FilterPosition::of(told).filter(|_| is_ascending)?,
        })
    }
}

/// A block of which nothing has to be taken back is its number and hash. Others have flags and logs.
fn write_block(told: &ToldBlock, json: &mut String) {
    let ToldBlock { block, logs, is_tip, is_proven } = told;
    json.push_str(&format!(r#"["{}","{}""#, block.number.hex(), block.hash));
    if !logs.is_empty() || !is_tip || !is_proven {
        let flags = u64::from(*is_tip) * IS_TIP + u64::from(*is_proven) * IS_PROVEN;
        // They were items of an upstream's answer, which is JSON, so they are text.
        let logs: Vec<_> = logs.iter().map(|log| String::from_utf8_lossy(log)).collect();
        json.push_str(&format!(",{flags},[{}]", logs.join(",")));
    }
    json.push(']');
}

fn read_block(block: &[u8]) -> Option<ToldBlock> {
    let number = raw::item(block, 0).and_then(raw::quantity).map(BlockNumber)?;
    let hash = raw::item(block, 1).and_then(raw::string)?.parse().ok()?;
    let told = ToldBlock::without_logs(NumberedBlock { number, hash });
    let Some(flags) = raw::item(block, 2) else { return Some(told) };
    let flags = raw::quantity(flags)?;
    let logs = raw::items(raw::item(block, 3)?).map(Bytes::copy_from_slice).collect();
    Some(ToldBlock { logs, is_tip: flags & IS_TIP > 0, is_proven: flags & IS_PROVEN > 0, ..told })
}
