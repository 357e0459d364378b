//! The body of an answer: bytes in one piece or several, sent without copying.

use bytes::Bytes;

/// What an answer says, in one piece or several that follow each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AnswerBody {
    /// One piece; empty for nothing.
    One(Bytes),
    /// Several: an envelope around an upstream's bytes, or the items of a batch.
    Many(Vec<Bytes>),
}

impl AnswerBody {
    /// Bytes altogether.
    pub fn len(&self) -> usize {
        self.pieces().iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing to say.
    pub fn is_empty(&self) -> bool {
        self.pieces().iter().all(Bytes::is_empty)
    }

    /// The pieces in order; some may be empty.
    pub fn pieces(&self) -> &[Bytes] {
        match self {
            Self::One(piece) => std::slice::from_ref(piece),
            Self::Many(pieces) => pieces,
        }
    }

    pub(crate) fn piece_mut(&mut self, index: usize) -> Option<&mut Bytes> {
        match self {
            Self::One(piece) => (index == 0).then_some(piece),
            Self::Many(pieces) => pieces.get_mut(index),
        }
    }
}

impl Default for AnswerBody {
    fn default() -> Self {
        Self::One(Bytes::new())
    }
}

impl From<Bytes> for AnswerBody {
    fn from(piece: Bytes) -> Self {
        Self::One(piece)
    }
}

impl From<Vec<Bytes>> for AnswerBody {
    fn from(pieces: Vec<Bytes>) -> Self {
        Self::Many(pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths() {
        let piece = Bytes::from_static(b"abc");
        for (body, length) in [
            (AnswerBody::default(), 0),
            (AnswerBody::from(piece.clone()), 3),
            (AnswerBody::from(vec![]), 0),
            (AnswerBody::from(vec![Bytes::new()]), 0),
            (AnswerBody::from(vec![piece.clone(), Bytes::new(), piece]), 6),
        ] {
            assert_eq!(body.len(), length);
            assert_eq!(body.is_empty(), length == 0);
        }
    }
}
