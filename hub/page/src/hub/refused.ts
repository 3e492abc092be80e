/** What the hub, or the way to it, said in place of an answer. */
export class Refused extends Error {
  constructor(
    message: string,
    readonly hint: string = "",
  ) {
    super(message);
    this.name = "Refused";
  }
}
