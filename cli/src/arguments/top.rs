//! The arguments of `berth top`.

use clap::Args;

/// Arguments of `berth top`. What is shown is selected with keys.
#[derive(Debug, Args)]
#[command(after_help = "\
Views: 1 the cluster, 2 all hosts, 3 one host with the owner of each CPU,
4 operations. Enter opens what is selected, Esc goes back, / filters, s sorts,
v verifies what the failure of each host would mean, q quits, ? shows all keys.
The picture follows the changes of the cluster. If the connection is lost, it
is dimmed and the header says since when; berth continues at another scheduler.

NO_COLOR turns colours off. In a locale that is not UTF-8 it is drawn in ASCII.
For lines or JSON instead: berth watch.")]
pub struct Top {}
