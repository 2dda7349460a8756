//! A small tree of elements, so that a document is written as it looks.

use quick_xml::Writer;
use quick_xml::events::{BytesEnd, BytesStart, BytesText, Event};

/// An element.
pub(super) struct Node {
    name: &'static str,
    attributes: Vec<(&'static str, String)>,
    content: Content,
}

enum Content {
    Empty,
    Text(String),
    Children(Vec<Node>),
}

impl Node {
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            attributes: Vec::new(),
            content: Content::Empty,
        }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl ToString) -> Self {
        self.attributes.push((name, value.to_string()));
        self
    }

    pub(super) fn text(mut self, text: impl ToString) -> Self {
        self.content = Content::Text(text.to_string());
        self
    }

    pub(super) fn child(mut self, child: Self) -> Self {
        match &mut self.content {
            Content::Children(children) => children.push(child),
            Content::Empty | Content::Text(_) => self.content = Content::Children(vec![child]),
        }
        self
    }

    pub(super) fn children(self, children: impl IntoIterator<Item = Self>) -> Self {
        children.into_iter().fold(self, Self::child)
    }

    pub(super) fn to_xml(&self) -> String {
        let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
        self.write(&mut writer);
        let mut xml = String::from_utf8(writer.into_inner()).expect("written from strings");
        xml.push('\n');
        xml
    }

    fn write(&self, writer: &mut Writer<Vec<u8>>) {
        let mut start = BytesStart::new(self.name);
        for (name, value) in &self.attributes {
            start.push_attribute((*name, value.as_str()));
        }
        let mut put = |event| {
            writer
                .write_event(event)
                .expect("a vector takes everything")
        };
        match &self.content {
            Content::Empty => put(Event::Empty(start)),
            Content::Text(text) => {
                put(Event::Start(start));
                put(Event::Text(BytesText::new(text)));
                put(Event::End(BytesEnd::new(self.name)));
            }
            Content::Children(children) => {
                put(Event::Start(start));
                for child in children {
                    child.write(writer);
                }
                put_end(writer, self.name);
            }
        }
    }
}

fn put_end(writer: &mut Writer<Vec<u8>>, name: &str) {
    writer
        .write_event(Event::End(BytesEnd::new(name)))
        .expect("a vector takes everything");
}
