//! Conversations as the text a model was trained on: its chat template, and a guard for untrusted text in it.
//!
//! Start with [`Template`]. Knows no tokens and no files; the caller supplies the template's text.
//!
//! ```
//! use lis_chat_template::{Guard, Template};
//! use trajectory::Message;
//!
//! let template = Template::new(None, String::new(), String::new())?;
//! let messages = [Message::System { text: "Be brief.".into() }];
//! let prompt = template.render(&messages, &[], &Guard::default())?;
//! assert_eq!(prompt, "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>assistant\n");
//! # Ok::<(), lis_chat_template::TemplateError>(())
//! ```

mod date;
mod guard;
mod template;

pub use guard::{Guard, SPLIT};
pub use template::{Template, TemplateError};
