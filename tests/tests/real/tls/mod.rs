//! Mutual TLS where it takes more than processes on loopback: see `all/tls` for the rest.
//!
//! | file | what |
//! |---|---|
//! | `setup` | the documented setup, typed on machines in namespaces |
//! | `rest` | the Placement REST API over HTTPS |
//! | `metrics` | metrics and health over HTTPS |
//! | `page` | the page of the cluster over HTTPS |
//! | `kubernetes` | what Kubernetes calls of a controller of volumes |
//! | `curl` | a client of HTTPS that is not ours |

mod curl;
mod kubernetes;
mod metrics;
mod page;
mod rest;
mod setup;

pub(crate) use kubernetes::kubernetes_calls_a_controller_over_https;
pub(crate) use metrics::metrics_require_certificates;
pub(crate) use page::{
    actions_are_for_operators_and_in_their_name, browsers_log_in_by_a_link,
    the_page_requires_certificates,
};
pub(crate) use rest::the_rest_api_asks_for_certificates;
pub(crate) use setup::the_documented_setup_starts;
