//! A search in parts on its way to the client: what is there flows while the rest is found.
//!
//! It begins to flow when more was found than an answer may hold before it flows
//! (`limits.answer_buffer`) and the first part is there; until then a failure is told as an
//! error, from then on it cuts the answer. As any answer that flows it has a least pace in
//! place of `timeouts.total`, and each part has as long as the whole had. A task goes on
//! asking while the client takes what is there, so that no upstream is thought slow because
//! a client is; it ends when the client goes away.
//!
//! What is held: the pieces that the client is to take next, and behind the first part that is
//! not there as many bytes as an answer may hold before it flows, and then parts
//! that were asked for before that was so, `searches.parallel` at most.

use std::collections::VecDeque;

use bytes::Bytes;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use wellhead_dispatch::{FlowPlace, paced};
use wellhead_transport::{BoxFuture, Rest, Sent, TransportError, TransportErrorKind};

use crate::steps::search::under_way::{Ended, Search};

type Piece = Result<Bytes, TransportError>;

/// The list that `search` finds, and the brace that ends its envelope.
pub(crate) fn flowing(mut search: Search, place: FlowPlace) -> Box<dyn Rest> {
    search.flow();
    let time = search.time;
    // One piece is written while the next one waits here.
    let (sender, receiver) = channel(1);
    tokio::spawn(pump(search, sender));
    paced(Box::new(Pumped(receiver)), time, place)
}

/// The end of the task from which the client reads.
#[derive(Debug)]
struct Pumped(Receiver<Piece>);

impl Rest for Pumped {
    fn next(&mut self) -> BoxFuture<'_, Option<Piece>> {
        Box::pin(self.0.recv())
    }
}

/// Searches on, and hands over what is found as it is taken.
async fn pump(mut search: Search, client: Sender<Piece>) {
    let mut ready = VecDeque::new();
    loop {
        if ready.is_empty() {
            ready.extend(search.parts.take());
            if search.parts.is_taken() {
                if ready.is_empty() {
                    return;
                }
                ready.push_back(Bytes::from_static(b"}"));
            }
        }
        if let Err(ended) = search.launch() {
            return cut(search, ended, &client).await;
        }
        tokio::select! {
            biased;
            settled = search.step(), if search.is_waiting() => {
                let attempts = std::mem::take(&mut search.trail).attempts;
                attempts.iter().for_each(|attempt| search.chain().counts().attempted(attempt));
                if let Err(ended) = settled {
                    return cut(search, ended, &client).await;
                }
            }
            place = client.reserve(), if !ready.is_empty() => match (place, ready.pop_front()) {
                (Ok(place), Some(piece)) => place.send(Ok(piece)),
                (Err(_), _) | (_, None) => return,
            },
            () = client.closed() => return,
        }
    }
}

/// Ends what flows with an error, so that the client does not take it for whole. The other parts under
/// way end before that: the client may take long to read what is before the error, and nothing would
/// read their answers meanwhile, while they hold connections to upstreams.
async fn cut(search: Search, ended: Ended, client: &Sender<Piece>) {
    let chain = search.chain();
    let what = match ended {
        Ended::Error(_, slot) => {
            format!("{} refused a part", chain.roster.upstream(slot).identity().id)
        }
        Ended::Failed(failure) => format!("{failure:?}"),
        Ended::Refused(refusal) => refusal.message,
        Ended::Stuck(stuck) => format!("{stuck:?}"),
    };
    tracing::warn!(
        chain = %chain.name.name, why = %what,
        "a search that was on its way to a client could not be ended; the answer was cut"
    );
    drop(search);
    let error = TransportError::new(TransportErrorKind::Truncated, Sent::Maybe, what);
    // The client may be gone by now.
    let _ = client.send(Err(error)).await;
}
