//! A filter as text, for a restart and for other replicas.

use std::sync::Arc;

use bytes::Bytes;
use wellhead_eth::{BlockNumber, NumberedBlock};
use wellhead_jsonrpc::raw;

use crate::filter_id::VirtualFilterId;
use crate::poll::{FilterPosition, FilterQuery, ToldBlock, VirtualFilterKind};

/// Blocks of a filter that a restart keeps.
const SAVED_BLOCKS_MAX: usize = 8;

/// Flags of a block: see [`ToldBlock`].
const IS_TIP: u64 = 1;
const IS_PROVEN: u64 = 2;

/// A filter as it is written down. Logs told before that are not in it cannot be taken back afterwards.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedFilter {
    id: VirtualFilterId,
    pub(crate) client: u64,
    /// Of a filter for logs: the filter object.
    object: Option<String>,
    /// The newest blocks up to which it told, ascending and never empty.
    told: Vec<ToldBlock>,
}

impl SavedFilter {
    /// The filter as a restart keeps it: without what it told.
    pub(crate) fn for_restart(
        id: VirtualFilterId,
        client: u64,
        kind: &VirtualFilterKind,
        position: &FilterPosition,
    ) -> Self {
        Self { id, client, object: object(kind), told: position.untold(SAVED_BLOCKS_MAX) }
    }

    /// The filter as other replicas read it: with the newest logs that it told, about `told_bytes_max` of them.
    pub(crate) fn for_replicas(
        id: VirtualFilterId,
        client: u64,
        kind: &VirtualFilterKind,
        position: &FilterPosition,
        told_bytes_max: usize,
    ) -> Self {
        Self { id, client, object: object(kind), told: position.newest(told_bytes_max) }
    }

    /// Which filter it is.
    pub fn id(&self) -> VirtualFilterId {
        self.id
    }

    /// What it tells; `None` where the filter object is none.
    pub(crate) fn kind(&self) -> Option<VirtualFilterKind> {
        match self.object.as_deref().map(|object| FilterQuery::read(Some(object.as_bytes()))) {
            None => Some(VirtualFilterKind::Blocks),
            Some(Ok(filter)) => Some(VirtualFilterKind::Logs(Arc::new(filter))),
            Some(Err(_)) => None,
        }
    }

    /// How far it has told the chain.
    pub(crate) fn position(&self) -> Option<FilterPosition> {
        FilterPosition::of(self.told.iter().cloned())
    }

    /// The filter as a JSON object.
    pub fn to_json(&self) -> String {
        let Self { id, client, object, told } = self;
        let object = object.as_deref().unwrap_or("null");
        let mut json =
            format!(r#"{{"id":"{id}","client":"{client:#x}","filter":{object},"blocks":["#);
        for (place, told) in told.iter().enumerate() {
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
        let filter = (!raw::is_null(filter)).then(|| FilterQuery::read(Some(filter))).transpose();
        let told: Option<Vec<_>> = raw::items(field("blocks")?).map(read_block).collect();
        let told = told?;
        let is_ascending = told.is_sorted_by(|one, next| one.block.number < next.block.number);
        Some(Self {
            id: VirtualFilterId::parse(&raw::string(field("id")?)?)?,
            client: raw::quantity(field("client")?)?,
            object: filter.ok()?.map(|filter| filter.object().to_owned()),
            told: Some(told).filter(|told| is_ascending && !told.is_empty())?,
        })
    }
}

fn object(kind: &VirtualFilterKind) -> Option<String> {
    match kind {
        VirtualFilterKind::Blocks => None,
        VirtualFilterKind::Logs(filter) => Some(filter.object().to_owned()),
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
