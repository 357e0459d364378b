//! Between the listeners and the journey: what a request comes from, what a connection keeps, and the proxy of a
//! worker, which answers.
//!
//! ```text
//! server ── head ──> CallerControl ── Caller ──> WorkerHandler ── message ──> proxy
//!        <─ events ─ SubscriberSession <─────────────┘  (WebSocket)
//! ```
//!
//! The code that all requests run through is made here: [`serve`] is no generic function, so the server's code for
//! this handler belongs to this crate, which is built for speed, and the commands of `app` can be built for size.

mod control;
mod handler;
mod origin;
mod returned;
mod session;
mod sessions;

pub use control::{CallerControl, watch_sessions};
pub use handler::{WorkerHandler, serve};
pub use origin::KeyOrigin;
pub use returned::ReturnedCounts;
pub use session::SubscriberSession;
pub use sessions::SessionBook;
