//! How many requests were answered, by route and status, and how long they took.
//!
//! Not here: the requests themselves, which the log has at level debug.
//!
//! Invariant: routes and statuses are closed sets. A path that names nothing is counted as such, whatever it
//! is.

use std::time::Duration;

use axum::http::StatusCode;
use berth_process::metrics::{Bounds, Definition, DurationsBy, Exposition, Pairs};

use super::route::Route;

static REQUESTS: Definition = Definition::counter(
    "berth_placement_requests_total",
    &["route", "status"],
    "Requests of OpenStack Placement's REST API, by route and by the status of the response.",
);
static DURATION: Definition = Definition::histogram(
    "berth_placement_request_duration_seconds",
    &["route"],
    "Time from the head of a request of OpenStack Placement's REST API to its response.",
);

berth_process::label! {
    /// A route, as its path without names.
    enum RouteLabel {
        Root = "/",
        Classes = "/resource_classes",
        Class = "/resource_classes/{name}",
        Providers = "/resource_providers",
        Provider = "/resource_providers/{uuid}",
        Inventories = "/resource_providers/{uuid}/inventories",
        Inventory = "/resource_providers/{uuid}/inventories/{class}",
        ProviderUsages = "/resource_providers/{uuid}/usages",
        Aggregates = "/resource_providers/{uuid}/aggregates",
        ProviderAllocations = "/resource_providers/{uuid}/allocations",
        ProviderTraits = "/resource_providers/{uuid}/traits",
        AllAllocations = "/allocations",
        Allocations = "/allocations/{consumer}",
        Candidates = "/allocation_candidates",
        Traits = "/traits",
        Trait = "/traits/{name}",
        Usages = "/usages",
        Reshaper = "/reshaper",
        Unknown = "unknown",
    }
}

berth_process::label! {
    /// A status.
    enum StatusLabel {
        Ok = "200",
        Created = "201",
        NoContent = "204",
        BadRequest = "400",
        Unauthorized = "401",
        Forbidden = "403",
        NotFound = "404",
        MethodNotAllowed = "405",
        NotAcceptable = "406",
        Timeout = "408",
        Conflict = "409",
        TooLarge = "413",
        MediaType = "415",
        Internal = "500",
        Unavailable = "503",
        Other = "other",
    }
}

/// What was counted of the API.
#[derive(Debug)]
pub struct Requests {
    ended: Pairs<RouteLabel, StatusLabel>,
    took: DurationsBy<RouteLabel>,
}

impl Default for Requests {
    fn default() -> Self {
        Self {
            ended: Pairs::default(),
            took: DurationsBy::new(Bounds::SHORT),
        }
    }
}

impl Requests {
    pub(super) fn count(&self, route: Option<&Route>, status: StatusCode, took: Duration) {
        let route = label_of(route);
        self.ended.of(route, status.into()).increment();
        self.took.of(route).observe(took);
    }

    /// Adds the series to the exposition: of routes and statuses that occurred.
    pub fn expose(&self, out: &mut Exposition) {
        self.ended.expose_nonzero(&REQUESTS, out);
        self.took.expose_nonempty(&DURATION, out);
    }
}

fn label_of(route: Option<&Route>) -> RouteLabel {
    let Some(route) = route else {
        return RouteLabel::Unknown;
    };
    match route {
        Route::Root => RouteLabel::Root,
        Route::Classes => RouteLabel::Classes,
        Route::Class(_) => RouteLabel::Class,
        Route::Providers => RouteLabel::Providers,
        Route::Provider(_) => RouteLabel::Provider,
        Route::Inventories(_) => RouteLabel::Inventories,
        Route::Inventory(..) => RouteLabel::Inventory,
        Route::ProviderUsages(_) => RouteLabel::ProviderUsages,
        Route::Aggregates(_) => RouteLabel::Aggregates,
        Route::ProviderAllocations(_) => RouteLabel::ProviderAllocations,
        Route::ProviderTraits(_) => RouteLabel::ProviderTraits,
        Route::AllAllocations => RouteLabel::AllAllocations,
        Route::Allocations(_) => RouteLabel::Allocations,
        Route::Candidates => RouteLabel::Candidates,
        Route::Traits => RouteLabel::Traits,
        Route::Trait(_) => RouteLabel::Trait,
        Route::Usages => RouteLabel::Usages,
        Route::Reshaper => RouteLabel::Reshaper,
    }
}

impl From<StatusCode> for StatusLabel {
    fn from(status: StatusCode) -> Self {
        match status {
            StatusCode::OK => Self::Ok,
            StatusCode::CREATED => Self::Created,
            StatusCode::NO_CONTENT => Self::NoContent,
            StatusCode::BAD_REQUEST => Self::BadRequest,
            StatusCode::UNAUTHORIZED => Self::Unauthorized,
            StatusCode::FORBIDDEN => Self::Forbidden,
            StatusCode::NOT_FOUND => Self::NotFound,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::NOT_ACCEPTABLE => Self::NotAcceptable,
            StatusCode::REQUEST_TIMEOUT => Self::Timeout,
            StatusCode::CONFLICT => Self::Conflict,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::MediaType,
            StatusCode::INTERNAL_SERVER_ERROR => Self::Internal,
            StatusCode::SERVICE_UNAVAILABLE => Self::Unavailable,
            _ => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the label of a route is its path, so that no two routes share one.
    #[test]
    fn labels_are_the_paths_of_their_routes() {
        use berth_process::metrics::Label as _;
        for label in RouteLabel::ALL {
            let route = Route::parse(label.as_str());
            assert_eq!(label_of(route.as_ref()), *label, "{route:?}");
        }
    }

    #[test]
    fn only_what_occurred_is_exposed() {
        let requests = Requests::default();
        let route = Route::parse("/traits/HW_CPU_X86_AVX");
        requests.count(route.as_ref(), StatusCode::NO_CONTENT, Duration::ZERO);
        requests.count(None, StatusCode::IM_A_TEAPOT, Duration::ZERO);
        let mut out = Exposition::default();
        requests.expose(&mut out);
        let text = out.to_open_metrics();
        for line in [
            "_total{route=\"/traits/{name}\",status=\"204\"} 1\n",
            "_total{route=\"unknown\",status=\"other\"} 1\n",
            "_count{route=\"unknown\"} 1\n",
        ] {
            assert!(text.contains(line), "{line}\n{text}");
        }
        assert_eq!(text.matches("_total{").count(), 2, "{text}");
    }
}
