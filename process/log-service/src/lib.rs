//! The gRPC service by which operators change which log lines a program writes, for a duration. Every
//! program that serves gRPC adds it to its services.
//!
//! Not here: how the log is written and changes end (`berth-process`), and which role may call what (its
//! access table).
//!
//! Invariant: it answers for the called process, and calls no other.

use std::sync::Arc;
use std::time::Duration;

use berth_domain::refusal::{Code, Refusal};
use berth_process::access::principal;
use berth_process::log::level::{self, Level, SetError, Status as Current};
use berth_proto::convert::Invalid;
use berth_proto::convert::field;
use berth_proto::log::v1::log_service_server::{LogService, LogServiceServer};
use berth_proto::log::v1::{
    GetLogLevelRequest, GetLogLevelResponse, LogLevel, LogLevelChange, ResetLogLevelRequest,
    ResetLogLevelResponse, SetLogLevelRequest, SetLogLevelResponse,
};
use berth_proto::status::to_status;
use tonic::{Request, Response, Status};

pub use berth_proto::log::v1::log_service_server::SERVICE_NAME;

/// The reason of a refusal of a process that writes its log by other means.
pub const LOG_NOT_CONFIGURABLE: &str = "LOG_NOT_CONFIGURABLE";

/// The service of one process.
#[derive(Clone, Debug)]
pub struct LogApi {
    level: Option<Arc<Level>>,
}

/// Returns the service of this process.
#[must_use]
pub fn service() -> LogServiceServer<LogApi> {
    LogServiceServer::new(LogApi::new(level::of_process()))
}

impl LogApi {
    /// Returns the service of a process with this level; `None` where its log is written by other means.
    #[must_use]
    pub fn new(level: Option<Arc<Level>>) -> Self {
        Self { level }
    }

    fn level(&self) -> Result<&Arc<Level>, Status> {
        let message = "the process that embeds this server writes its log by other means, or none";
        self.level.as_ref().ok_or_else(|| {
            let refusal = Refusal::new(Code::FailedPrecondition, LOG_NOT_CONFIGURABLE, message);
            to_status(&refusal)
        })
    }
}

#[tonic::async_trait]
impl LogService for LogApi {
    async fn get_log_level(
        &self,
        _: Request<GetLogLevelRequest>,
    ) -> Result<Response<GetLogLevelResponse>, Status> {
        let log_level = Some(to_wire(self.level()?.status()));
        Ok(Response::new(GetLogLevelResponse { log_level }))
    }

    async fn set_log_level(
        &self,
        request: Request<SetLogLevelRequest>,
    ) -> Result<Response<SetLogLevelResponse>, Status> {
        let level = self.level()?;
        let principal = principal(&request);
        let SetLogLevelRequest { filter, duration } = request.into_inner();
        let ms = field::optional_duration_ms(duration, "duration")?;
        let duration = Duration::from_millis(ms.unwrap_or_default());
        let set = level.set(&filter, duration, &principal);
        let log_level = Some(to_wire(set.map_err(|error| refused(&error))?));
        Ok(Response::new(SetLogLevelResponse { log_level }))
    }

    async fn reset_log_level(
        &self,
        request: Request<ResetLogLevelRequest>,
    ) -> Result<Response<ResetLogLevelResponse>, Status> {
        let reset = self.level()?.reset(&principal(&request));
        let log_level = Some(to_wire(reset.map_err(|error| refused(&error))?));
        Ok(Response::new(ResetLogLevelResponse { log_level }))
    }
}

fn to_wire(current: Current) -> LogLevel {
    LogLevel {
        configured_filter: current.configured,
        change: current.change.map(|change| LogLevelChange {
            filter: change.filter,
            principal: change.principal,
            remaining: Some(field::duration(
                u64::try_from(change.remaining.as_millis()).unwrap_or(u64::MAX),
            )),
        }),
    }
}

fn refused(error: &SetError) -> Status {
    match error {
        SetError::Filter(invalid) => Invalid::new("filter", invalid.to_string()).into(),
        SetError::Duration => Invalid::new("duration", "is required, 1 second to 24 hours").into(),
        SetError::Log(error) => {
            let refusal = Refusal::new(Code::Internal, "LOG_NOT_WRITTEN", error.to_string());
            to_status(&refusal)
        }
    }
}

#[cfg(test)]
mod tests {
    use berth_proto::status::from_status;
    use tracing_subscriber::{EnvFilter, reload};

    use super::*;

    /// Returns a service, and what its level needs to be changed.
    fn api() -> (
        LogApi,
        reload::Layer<EnvFilter, tracing_subscriber::Registry>,
    ) {
        let (layer, handle) = reload::Layer::new(EnvFilter::new("info"));
        let level = Level::new("info", move |filter| handle.reload(filter));
        (LogApi::new(Some(Arc::new(level))), layer)
    }

    fn set(filter: &str, ms: Option<u64>) -> Request<SetLogLevelRequest> {
        Request::new(SetLogLevelRequest {
            filter: filter.to_owned(),
            duration: ms.map(field::duration),
        })
    }

    fn invalid(result: Result<Response<SetLogLevelResponse>, Status>) -> (String, String) {
        let refusal = from_status(&result.expect_err("a refusal"));
        assert_eq!(refusal.reason, "INVALID_FIELD");
        let field = refusal.metadata.get("field").cloned();
        (field.unwrap_or_default(), refusal.message)
    }

    #[tokio::test]
    async fn a_change_is_shown_until_it_is_reset() {
        let (api, _layer) = api();
        let set = api.set_log_level(set("h2=debug", Some(600_000))).await;
        let set = set.expect("a change").into_inner().log_level.unwrap();
        assert_eq!(set.configured_filter, "info");
        let change = set.change.expect("it is in force");
        assert_eq!(
            (&*change.filter, &*change.principal),
            ("h2=debug", "unverified")
        );
        let remaining = field::optional_duration_ms(change.remaining, "remaining").unwrap();
        assert!(
            remaining.is_some_and(|ms| ms <= 600_000 && ms > 0),
            "{remaining:?}"
        );
        let get = || api.get_log_level(Request::new(GetLogLevelRequest {}));
        let shown = get().await.unwrap().into_inner().log_level.unwrap();
        assert_eq!(shown.change.expect("it is in force").filter, "h2=debug");
        let reset = api.reset_log_level(Request::new(ResetLogLevelRequest {}));
        let reset = reset.await.unwrap().into_inner().log_level.unwrap();
        assert_eq!(reset.change, None);
        assert_eq!(get().await.unwrap().into_inner().log_level, Some(reset));
    }

    #[tokio::test]
    async fn each_wrong_field_is_named() {
        let (api, _layer) = api();
        for (filter, ms, field) in [
            ("", Some(1_000), "filter"),
            ("h2=loud", Some(1_000), "filter"),
            ("audit=off", Some(1_000), "filter"),
            ("h2=debug", None, "duration"),
            ("h2=debug", Some(999), "duration"),
            ("h2=debug", Some(24 * 3_600_000 + 1), "duration"),
        ] {
            let (named, message) = invalid(api.set_log_level(set(filter, ms)).await);
            assert_eq!(named, field, "{filter} {ms:?}: {message}");
            assert!(message.starts_with(&format!("{field}: ")), "{message}");
        }
        let status = api.level().expect("a level").status();
        assert_eq!(status.change, None);
    }

    #[tokio::test]
    async fn a_log_that_is_written_by_other_means_is_not_changed() {
        let api = LogApi::new(None);
        let reason = |status: Status| from_status(&status).reason;
        let get = api.get_log_level(Request::new(GetLogLevelRequest {})).await;
        assert_eq!(reason(get.expect_err("a refusal")), LOG_NOT_CONFIGURABLE);
        let set = api.set_log_level(set("debug", Some(1_000))).await;
        assert_eq!(reason(set.expect_err("a refusal")), LOG_NOT_CONFIGURABLE);
        let reset = api.reset_log_level(Request::new(ResetLogLevelRequest {}));
        assert_eq!(
            reason(reset.await.expect_err("a refusal")),
            LOG_NOT_CONFIGURABLE
        );
    }
}
