/* Sentences to begin with, each with the label that a person gives it. `wrong` marks those that the model gets wrong: they
   are called so. A test asks the served model about each. */

export const EXAMPLES = [
  {
    name: "Torn",
    text: "Beautiful pictures and great music, but the story is a mess and the ending is awful. What a waste.",
    label: "negative",
  },
  {
    name: "Praise",
    text: "A wonderful film. Great acting, a clever script, and I was never bored.",
    label: "positive",
  },
  {
    name: "Not bad",
    text: "Not bad at all: the jokes are funny and the ending is charming, although the middle is a little slow.",
    label: "positive",
  },
  {
    name: "Irony, which it gets wrong",
    text: "Great, the train is late again. I just love waiting in the rain.",
    label: "negative",
    wrong: true,
  },
];
