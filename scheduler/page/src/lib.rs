//! The page of the cluster: HTML of what the services of the scheduler answer.
//!
//! ```text
//!   path, query ─▶ Route ─▶ (the server reads) ─▶ messages of the API ─▶ HTML
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`route`] | which view a path and a query name, and which methods of the API it reads |
//! | [`form`] | the parameters of a query |
//! | [`host_header`] | for which names the page is served, against DNS rebinding |
//! | [`headers`], [`assets`] | the headers of every response; style, script and icon |
//! | [`frame`] | what surrounds every view: navigation, and what its state is worth |
//! | [`cluster`], [`hosts`], [`host`], [`vms`], [`vm`], [`history`], [`why_not`], [`failover`] | one view each |
//! | [`failure`] | why there is no view |
//! | `operations`, `table`, `text`, `words` | what views have in common |
//!
//! Not here: sockets, certificates, and how the state is read: the server's. Nothing here changes anything,
//! and no view has an action.
//!
//! Invariant: everything that a client or a host named passes through `text`, which makes hidden characters
//! visible and limits the length, and then through the escaping of `maud`. There is no inline script or
//! style.

pub mod assets;
pub mod cluster;
pub mod failover;
pub mod failure;
pub mod form;
pub mod frame;
pub mod headers;
pub mod history;
pub mod host;
pub mod host_header;
pub mod hosts;
mod operations;
pub mod route;
mod table;
mod text;
pub mod vm;
pub mod vms;
pub mod why_not;
mod words;

pub use frame::{Frame, Source};
pub use route::Route;
