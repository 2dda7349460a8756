//! The task that sends spans to the collector, in batches, by OpenTelemetry's exporter for OTLP.
//!
//! Not the batch processor of OpenTelemetry's SDK: it has a thread of its own, and does not report how
//! many spans it drops.
//!
//! Invariant: each span that it takes is counted once, as exported or as failed. A collector that
//! fails is in the log once, until it accepts spans again.

use std::time::Duration;

use opentelemetry::trace::{
    Event, Link, SpanContext as OtelContext, SpanId, SpanKind, Status, TraceFlags, TraceId,
    TraceState,
};
use opentelemetry::{InstrumentationScope, KeyValue};
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _, WithTonicConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SpanData, SpanEvents, SpanExporter as _, SpanLinks};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use crate::attributes::{SERVICE_INSTANCE_ID, SERVICE_NAME, SERVICE_VERSION};
use crate::connector::CALL_TIMEOUT;
use crate::context::SpanContext;
use crate::recorder::{COUNTS, Service};
use crate::span::{Finished, Kind, Value};

/// Spans of a batch at most.
const BATCH_MAX: usize = 512;
/// How long a span waits for others. What a program had in its queue when it was killed is lost.
const BATCH_DELAY: Duration = Duration::from_millis(200);

/// Sends batches.
#[derive(Debug)]
pub(crate) struct Exporter {
    exporter: SpanExporter,
    scope: InstrumentationScope,
    is_failing: bool,
}

impl Exporter {
    pub(crate) fn new(channel: Channel, service: &Service) -> Result<Self, String> {
        let built = SpanExporter::builder()
            .with_tonic()
            .with_channel(channel)
            .with_timeout(CALL_TIMEOUT)
            .build();
        let mut exporter = built.map_err(|error| format!("traces: {error}"))?;
        let resource = Resource::builder_empty().with_attributes([
            KeyValue::new(SERVICE_NAME, service.name),
            KeyValue::new(SERVICE_INSTANCE_ID, service.instance.clone()),
            KeyValue::new(SERVICE_VERSION, service.version),
        ]);
        exporter.set_resource(&resource.build());
        let scope = InstrumentationScope::builder("berth");
        Ok(Self {
            exporter,
            scope: scope.with_version(service.version).build(),
            is_failing: false,
        })
    }

    async fn export(&mut self, batch: &mut Vec<Finished>) {
        let spans = batch.len();
        let data = batch.drain(..).map(|span| data(span, &self.scope));
        let data = data.collect();
        // The exporter has a time limit, which a stalled connection may not reach.
        let exported = tokio::time::timeout(2 * CALL_TIMEOUT, self.exporter.export(data)).await;
        let failure = match exported {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some("no answer in time".to_owned()),
        };
        COUNTS.count(spans, failure.is_none());
        match &failure {
            Some(error) if !self.is_failing => {
                tracing::warn!(error, "the collector of traces fails, spans are dropped");
            }
            None if self.is_failing => tracing::info!("the collector of traces accepts spans"),
            Some(_) | None => {}
        }
        self.is_failing = failure.is_some();
    }
}

/// Sends spans until `stopping`, and then those that are left.
pub(crate) async fn run(
    mut exporter: Exporter,
    mut spans: mpsc::Receiver<Finished>,
    stopping: CancellationToken,
) {
    let mut batch = Vec::new();
    loop {
        let is_open = fill(&mut batch, &mut spans, &stopping).await;
        if !batch.is_empty() {
            exporter.export(&mut batch).await;
        }
        if !is_open {
            return;
        }
    }
}

/// Takes the next batch; returns whether there may be more.
async fn fill(
    batch: &mut Vec<Finished>,
    spans: &mut mpsc::Receiver<Finished>,
    stopping: &CancellationToken,
) -> bool {
    tokio::select! {
        biased;
        taken = spans.recv_many(batch, BATCH_MAX) => if taken == 0 {
            return false;
        },
        () = stopping.cancelled() => {
            spans.close();
            return spans.recv_many(batch, BATCH_MAX).await > 0;
        }
    }
    let deadline = tokio::time::Instant::now() + BATCH_DELAY;
    while batch.len() < BATCH_MAX {
        let left = BATCH_MAX - batch.len();
        tokio::select! {
            () = tokio::time::sleep_until(deadline) => return true,
            () = stopping.cancelled() => return true,
            taken = spans.recv_many(batch, left) => if taken == 0 {
                return false;
            },
        }
    }
    true
}

/// Returns a span as the exporter takes it.
fn data(span: Finished, scope: &InstrumentationScope) -> SpanData {
    let mut events = SpanEvents::default();
    let event = |(name, at)| Event::new(name, at, Vec::new(), 0);
    events.events = span.events.into_iter().map(event).collect();
    let mut links = SpanLinks::default();
    let link = |to: SpanContext| Link::with_context(identity(to));
    links.links = span.links.into_iter().map(link).collect();
    SpanData {
        span_context: identity(span.context),
        parent_span_id: span.parent.map_or(SpanId::INVALID, span_id),
        parent_span_is_remote: span.is_parent_remote,
        span_kind: match span.kind {
            Kind::Internal => SpanKind::Internal,
            Kind::Server => SpanKind::Server,
            Kind::Client => SpanKind::Client,
        },
        name: span.name,
        start_time: span.begun,
        end_time: span.ended,
        attributes: span.attributes.into_iter().map(attribute).collect(),
        dropped_attributes_count: 0,
        events,
        links,
        status: match span.failed {
            None => Status::Unset,
            Some(false) => Status::Ok,
            Some(true) => Status::error(""),
        },
        instrumentation_scope: scope.clone(),
    }
}

fn identity(context: SpanContext) -> OtelContext {
    let flags = match context.is_sampled {
        true => TraceFlags::SAMPLED,
        false => TraceFlags::NOT_SAMPLED,
    };
    let trace = TraceId::from_bytes(context.trace.to_be_bytes());
    OtelContext::new(trace, span_id(context.span), flags, false, TraceState::NONE)
}

fn span_id(span: u64) -> SpanId {
    SpanId::from_bytes(span.to_be_bytes())
}

fn attribute((name, value): (&'static str, Value)) -> KeyValue {
    match value {
        Value::Text(text) => KeyValue::new(name, text),
        Value::Number(number) => KeyValue::new(name, number),
        Value::Flag(flag) => KeyValue::new(name, flag),
    }
}
