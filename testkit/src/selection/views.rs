//! Hosts with what is taken of them.

use std::sync::Arc;

use berth_domain::host_view::HostView;

use super::hosts::{Shape, host, topology};

/// Returns the view of a host that holds nothing.
pub fn view(text: &str, shape: Shape) -> HostView {
    HostView::new(Arc::new(host(text, &Arc::new(topology(shape)))), [])
}
