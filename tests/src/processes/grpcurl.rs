//! A stand-in for the command `grpcurl`, so that what the documentation types with it is tested
//! where it cannot be installed.
//!
//! It knows the service by reflection only, as the real one does: nothing here was generated from
//! our files. What it is not: complete. It takes `-plaintext`, `-d JSON`, an address, and a
//! method or `list`.
//!
//! Invariant: a field or method that the server does not describe is refused.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::process::ExitCode;

use anyhow::{Context as _, Result, bail};
use prost_reflect::prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, MethodDescriptor};
use prost_types::FileDescriptorProto;
use tokio_stream::StreamExt as _;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ServerReflectionRequest, ServiceResponse};

/// Runs the command with these arguments, the program's name first.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    let words = arguments.into_iter().skip(1);
    let words: Vec<String> = words.map(|w| w.to_string_lossy().into_owned()).collect();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    match runtime.block_on(run(&words)) {
        Ok(text) => {
            println!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("ERROR:\n  {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(words: &[String]) -> Result<String> {
    let mut data = "{}";
    let mut others = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-plaintext" => {}
            "-d" => data = words.next().context("-d takes JSON")?,
            flag if flag.starts_with('-') => bail!("{flag} is not known to this stand-in"),
            other => others.push(other),
        }
    }
    let [address, what] = others[..] else {
        bail!("expected an address, and a method or list: {others:?}");
    };
    let channel = Endpoint::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    match what {
        "list" => Ok(services(&channel).await?.join("\n")),
        method => call(channel, method, data).await,
    }
}

/// Returns the names of the services that a server has.
async fn services(channel: &Channel) -> Result<Vec<String>> {
    let answer = reflect(channel, MessageRequest::ListServices(String::new())).await?;
    let MessageResponse::ListServicesResponse(list) = answer else {
        bail!("not a list of services: {answer:?}");
    };
    let name = |service: ServiceResponse| service.name;
    Ok(list.service.into_iter().map(name).collect())
}

/// Makes a call with JSON and returns what was answered, as JSON; one value for each message.
async fn call(channel: Channel, method: &str, data: &str) -> Result<String> {
    let (service, name) = method
        .rsplit_once('/')
        .context("a method is SERVICE/METHOD")?;
    let pool = describe(&channel, service).await?;
    let service = pool
        .get_service_by_name(service)
        .context("it does not describe that service")?;
    let method = service.methods().find(|m| m.name() == name);
    let method = method.with_context(|| format!("{} has no method {name}", service.name()))?;
    let mut json = serde_json::Deserializer::from_str(data);
    let message = DynamicMessage::deserialize(method.input(), &mut json)
        .with_context(|| format!("the JSON is no {}", method.input().full_name()))?;
    json.end()?;
    let answers = send(channel, &method, message).await;
    let answers = answers.map_err(|status| {
        anyhow::anyhow!("Code: {:?}\n  Message: {}", status.code(), status.message())
    })?;
    let shown = answers.iter().map(serde_json::to_string_pretty);
    Ok(shown.collect::<Result<Vec<_>, _>>()?.join("\n"))
}

async fn send(
    channel: Channel,
    method: &MethodDescriptor,
    message: DynamicMessage,
) -> Result<Vec<DynamicMessage>, Status> {
    let path = format!("/{}/{}", method.parent_service().full_name(), method.name());
    let path = path
        .parse()
        .map_err(|_| Status::internal("the method's name is no path"))?;
    let codec = Dynamic(method.output());
    let mut client = tonic::client::Grpc::new(channel);
    let ready = client.ready().await;
    ready.map_err(|error| Status::unavailable(error.to_string()))?;
    let request = Request::new(message);
    let answers = client.server_streaming(request, path, codec).await?;
    answers.into_inner().collect::<Result<Vec<_>, _>>().await
}

/// Asks a server for the description of a service, and of everything that it refers to.
async fn describe(channel: &Channel, service: &str) -> Result<DescriptorPool> {
    let mut files: BTreeMap<String, FileDescriptorProto> = BTreeMap::new();
    let mut questions = vec![MessageRequest::FileContainingSymbol(service.to_owned())];
    while let Some(question) = questions.pop() {
        if let MessageRequest::FileByFilename(name) = &question
            && files.contains_key(name)
        {
            continue;
        }
        let answer = reflect(channel, question).await?;
        let MessageResponse::FileDescriptorResponse(answer) = answer else {
            bail!("{service} is not described: {answer:?}");
        };
        for bytes in answer.file_descriptor_proto {
            let file = FileDescriptorProto::decode(&*bytes)?;
            questions.extend(
                file.dependency
                    .iter()
                    .cloned()
                    .map(MessageRequest::FileByFilename),
            );
            files.insert(file.name().to_owned(), file);
        }
    }
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_protos(files.into_values())?;
    Ok(pool)
}

async fn reflect(channel: &Channel, question: MessageRequest) -> Result<MessageResponse> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    };
    let mut client = ServerReflectionClient::new(channel.clone());
    let response = client
        .server_reflection_info(tokio_stream::once(request))
        .await?;
    let answer = response
        .into_inner()
        .message()
        .await?
        .context("no answer")?;
    answer.message_response.context("an empty answer")
}

/// Encodes and decodes messages of which only a description is known.
#[derive(Clone, Debug)]
struct Dynamic(MessageDescriptor);

impl Codec for Dynamic {
    type Encode = DynamicMessage;
    type Decode = DynamicMessage;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        self.clone()
    }

    fn decoder(&mut self) -> Self {
        self.clone()
    }
}

impl Encoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn encode(&mut self, item: DynamicMessage, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        item.encode(to)
            .map_err(|error| Status::internal(error.to_string()))
    }
}

impl Decoder for Dynamic {
    type Item = DynamicMessage;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<DynamicMessage>, Status> {
        let decoded = DynamicMessage::decode(self.0.clone(), from);
        decoded
            .map(Some)
            .map_err(|error| Status::internal(error.to_string()))
    }
}
