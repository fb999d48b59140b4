// Swagger UI on this server's OpenAPI document. The address is relative, so that it works below a prefix.
SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#docs",
  deepLinking: true,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
