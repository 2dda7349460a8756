//! The names of all attributes of spans: those of OpenTelemetry's semantic conventions, and ours.
//! `docs/traces.md` describes them.
//!
//! Not here: texts of users. Values are names of resources, which are bounded, words of closed sets,
//! and numbers.

/// The program, as `berth-conductor`.
pub const SERVICE_NAME: &str = "service.name";
/// Which of several: a conductor's name, a host, a member.
pub const SERVICE_INSTANCE_ID: &str = "service.instance.id";
/// The version of the program.
pub const SERVICE_VERSION: &str = "service.version";

/// Always `grpc`.
pub const RPC_SYSTEM: &str = "rpc.system";
/// The full name of the service, as `berth.operation.v1.OperationService`.
pub const RPC_SERVICE: &str = "rpc.service";
/// The method, as `Advance`.
pub const RPC_METHOD: &str = "rpc.method";
/// The number of the status.
pub const RPC_STATUS: &str = "rpc.grpc.status_code";
/// The reason of a refusal, or the kind of a failure.
pub const ERROR_TYPE: &str = "error.type";

/// The id of an operation, as `berth operation show` takes it.
pub const OPERATION_ID: &str = "berth.operation.id";
/// The kind of an operation, as `live_migrate`.
pub const OPERATION_KIND: &str = "berth.operation.kind";
/// The name of a VM.
pub const VM: &str = "berth.vm";
/// The name of a host.
pub const HOST: &str = "berth.host";
/// A step of an operation, as `Spawn`.
pub const STEP: &str = "berth.step";
/// Whether the step was being undone.
pub const STEP_UNDO: &str = "berth.step.undo";
/// How often the step was attempted for this claim, from 1.
pub const STEP_ATTEMPT: &str = "berth.step.attempt";
/// How many hosts were claimed before the step, this one included.
pub const STEP_CLAIM: &str = "berth.step.claim";
/// The kind of a request that the scheduler decided, as `boot`.
pub const COMMAND: &str = "berth.command";
/// The call of a hypervisor's driver, as `create`.
pub const DRIVER_CALL: &str = "berth.driver.call";

/// All of them, in the order of the document.
pub const ALL: &[&str] = &[
    SERVICE_NAME,
    SERVICE_INSTANCE_ID,
    SERVICE_VERSION,
    RPC_SYSTEM,
    RPC_SERVICE,
    RPC_METHOD,
    RPC_STATUS,
    ERROR_TYPE,
    OPERATION_ID,
    OPERATION_KIND,
    VM,
    HOST,
    STEP,
    STEP_UNDO,
    STEP_ATTEMPT,
    STEP_CLAIM,
    COMMAND,
    DRIVER_CALL,
];
