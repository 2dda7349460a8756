//! The arguments of `berth web`.

use clap::Subcommand;

/// Use the page of the cluster in a browser.
#[derive(Debug, Subcommand)]
pub enum Web {
    /// Print a link that logs a browser in to the page
    ///
    /// The link is of the first scheduler that serves the page. It can be used once
    /// and within 60 seconds, and gives the browser the rights of the certificate
    /// that this command is run with, for eight hours. The first browser that opens it
    /// is logged in: do not pass it on.
    Login,
}
