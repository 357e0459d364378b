//! A call, as far as its method decides what becomes of it.

use wellhead_dispatch::Job;
use wellhead_eth::MethodRow;

/// A method, and the parameters that go with it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MethodCall<'a> {
    pub(crate) row: &'a MethodRow,
    pub(crate) params: Option<&'a [u8]>,
}

impl<'a> MethodCall<'a> {
    pub(crate) fn of(job: &Job<'a>) -> Self {
        Self { row: job.row, params: job.params }
    }
}
