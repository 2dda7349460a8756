//! The page of the cluster: HTML of what the services of the scheduler answer.
//!
//! ```text
//!   path, query ─▶ Route ─▶ (the server reads) ─▶ messages of the API ─▶ HTML
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`route`] | which view a path and a query name, and which methods of the API it reads |
//! | [`action`], [`confirm`] | what a person can have done, and the view that confirms it |
//! | [`form`] | the parameters of a query, or of a form |
//! | [`host_header`] | for which names the page is served, against DNS rebinding |
//! | [`headers`], [`assets`] | the headers of every response; style, script and icon |
//! | [`frame`] | what surrounds every view: navigation, and what its state is worth |
//! | [`cluster`], [`hosts`], [`host`], [`vms`], [`vm`], [`history`], [`console`], [`why_not`], [`failover`], [`balance`], [`audit`] | one view each |
//! | [`login`] | the views of a login |
//! | [`failure`] | why there is no view |
//! | `operations`, `transfer`, `table`, `text`, `words` | what views have in common |
//!
//! Not here: sockets, certificates, how the state is read, and who carries actions out: the server's.
//!
//! Invariant: everything that a client or a host named passes through `text`, which makes hidden characters
//! visible and limits the length, and then through the escaping of `maud`. There is no inline script or
//! style.

pub mod action;
pub mod assets;
pub mod audit;
pub mod balance;
pub mod cluster;
pub mod confirm;
pub mod console;
pub mod failover;
pub mod failure;
pub mod form;
pub mod frame;
pub mod headers;
pub mod history;
pub mod host;
pub mod host_header;
pub mod hosts;
pub mod login;
mod operations;
pub mod route;
mod table;
mod text;
mod transfer;
pub mod vm;
pub mod vms;
pub mod why_not;
mod words;

pub use action::{Action, Submission};
pub use frame::{Frame, Source};
pub use route::Route;
pub use transfer::Measured;
